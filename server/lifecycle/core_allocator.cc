#include "server/lifecycle/core_allocator.h"

#include <algorithm>
#include <map>

#include "config/base/mutex.h"

namespace millrace::server {

using config::CpuSet;

struct CoreAllocator::State {
  explicit State(const config::Topology& of) : topology(of) {
    const int cores =
        std::min<int>(static_cast<int>(of.cores().size()), of.cpu_limit());
    all = of.PhysicalCores(cores >= 4 ? cores - 1 : std::max(cores, 1));
  }

  struct Team {
    CpuSet cpus;
    int num_leases = 0;  // 0: reserved
  };

  CpuSet ChooseFor(const CoreRequest& request) REQUIRES(mu);

  const config::Topology topology;
  CpuSet all;  // cores that compute, near ones side by side
  mutable Mutex mu;
  std::map<std::string, Team> teams GUARDED_BY(mu);  // by owner
};

CpuSet CoreAllocator::State::ChooseFor(const CoreRequest& request) {
  std::map<int, int> num_holders;
  for (const auto& [owner, team] : teams) {
    for (const int cpu : team.cpus) ++num_holders[cpu];
  }
  CpuSet order = all;
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return num_holders[a] < num_holders[b];
  });
  const auto free = static_cast<size_t>(std::count_if(
      all.begin(), all.end(), [&](int cpu) { return num_holders[cpu] == 0; }));
  size_t size = free;
  if (request.threads > 0) {
    size = std::min(static_cast<size_t>(request.threads), all.size());
  } else if (free == 0) {
    size = std::max<size_t>(all.size() / (teams.size() + 1), 1);
  }
  order.resize(size);
  std::sort(order.begin(), order.end());
  return order;
}

CoreAllocator::Lease::~Lease() {
  MutexLock lock(state_->mu);
  const auto at = state_->teams.find(holder_.owner);
  // Another load may have replaced the team meanwhile by one of another size.
  if (at == state_->teams.end() || at->second.cpus != holder_.cpus) return;
  if (--at->second.num_leases == 0) state_->teams.erase(at);
}

CoreAllocator::CoreAllocator(const config::Topology& topology)
    : state_(std::make_shared<State>(topology)) {}

void CoreAllocator::Reserve(const std::vector<CoreRequest>& requests) {
  MutexLock lock(state_->mu);
  const CpuSet& all = state_->all;
  size_t next = 0;
  for (const CoreRequest& request : requests) {
    const auto wanted = static_cast<size_t>(request.threads);
    State::Team& team = state_->teams[request.owner];
    if (wanted > all.size() && requests.size() == 1) {
      // Asked for in so many words: every core allowed, none left to sockets.
      team.cpus =
          state_->topology.PhysicalCores(static_cast<int>(request.threads));
      continue;
    }
    const size_t size = wanted > 0
                            ? std::min(wanted, all.size())
                            : std::max<size_t>(all.size() / requests.size(), 1);
    team.cpus.clear();
    for (size_t i = 0; i < size; ++i) {
      team.cpus.push_back(all[next++ % all.size()]);
    }
    std::sort(team.cpus.begin(), team.cpus.end());
  }
}

std::shared_ptr<const CoreAllocator::Lease> CoreAllocator::Take(
    const CoreRequest& request) {
  CoreHolder holder{request.owner, {}};
  {
    MutexLock lock(state_->mu);
    auto at = state_->teams.find(request.owner);
    const bool fits =
        at != state_->teams.end() &&
        (at->second.num_leases == 0 || request.threads == 0 ||
         static_cast<size_t>(request.threads) == at->second.cpus.size());
    if (!fits) {
      if (at != state_->teams.end()) state_->teams.erase(at);
      CpuSet cpus = state_->ChooseFor(request);
      at = state_->teams.emplace(request.owner, State::Team{std::move(cpus)})
               .first;
    }
    ++at->second.num_leases;
    holder.cpus = at->second.cpus;
  }
  return std::make_shared<const Lease>(state_, std::move(holder));
}

std::vector<CoreHolder> CoreAllocator::Holders() const {
  MutexLock lock(state_->mu);
  std::vector<CoreHolder> holders;
  for (const auto& [owner, team] : state_->teams) {
    holders.push_back({owner, team.cpus});
  }
  return holders;
}

}  // namespace millrace::server
