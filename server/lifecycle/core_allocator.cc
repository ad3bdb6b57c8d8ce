#include "server/lifecycle/core_allocator.h"

#include <algorithm>
#include <map>

#include "config/base/mutex.h"
#include "config/base/utf8.h"
#include "config/cgroup.h"

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
    int64_t number = 0;  // its own among all there ever were
  };

  // The cores that compute, of one NUMA node where it is not negative.
  CpuSet Candidates(int64_t numa_node) const;
  CpuSet ChooseFor(const CoreRequest& request) REQUIRES(mu);
  // By CPU: the teams that have it or another CPU of its core.
  std::map<int, int> NumHolders() const REQUIRES(mu);
  // Of them, those that no team has.
  size_t NumFree(const CpuSet& candidates) const REQUIRES(mu);
  // Ascending; of those with the fewest holders, near ones side by side.
  CpuSet LeastHeld(CpuSet candidates, size_t size) const REQUIRES(mu);
  // Whether a team that is held is what the request would get.
  bool Fits(const Team& team, const CoreRequest& request) const;

  const config::Topology topology;
  CpuSet all;  // cores that compute, near ones side by side
  mutable Mutex mu;
  std::map<std::string, Team> teams GUARDED_BY(mu);  // by owner
  int64_t num_teams GUARDED_BY(mu) = 0;
};

CpuSet CoreAllocator::State::Candidates(int64_t numa_node) const {
  if (numa_node < 0) return all;
  CpuSet of_node;
  CpuSet computing;
  for (const config::Core& core : topology.cores()) {
    if (core.numa_node != numa_node) continue;
    const int cpu = core.cpus.front();
    of_node.push_back(cpu);
    if (std::find(all.begin(), all.end(), cpu) != all.end()) {
      computing.push_back(cpu);
    }
  }
  return computing.empty() ? of_node : computing;
}

bool CoreAllocator::State::Fits(const Team& team,
                                const CoreRequest& request) const {
  if (!request.cpus.empty()) return team.cpus == request.cpus;
  const CpuSet allowed = Candidates(request.numa_node);
  const bool inside =
      std::all_of(team.cpus.begin(), team.cpus.end(), [&](int cpu) {
        return request.numa_node < 0 ||
               std::find(allowed.begin(), allowed.end(), cpu) != allowed.end();
      });
  return inside && (team.num_leases == 0 || request.threads == 0 ||
                    static_cast<size_t>(request.threads) == team.cpus.size());
}

std::map<int, int> CoreAllocator::State::NumHolders() const {
  std::map<int, int> num_holders;
  for (const config::Core& core : topology.cores()) {
    const auto holds = [&](const auto& team) {
      return std::any_of(core.cpus.begin(), core.cpus.end(), [&](int cpu) {
        return std::find(team.second.cpus.begin(), team.second.cpus.end(),
                         cpu) != team.second.cpus.end();
      });
    };
    const auto count =
        static_cast<int>(std::count_if(teams.begin(), teams.end(), holds));
    for (const int cpu : core.cpus) num_holders[cpu] = count;
  }
  return num_holders;
}

CpuSet CoreAllocator::State::LeastHeld(CpuSet candidates, size_t size) const {
  const std::map<int, int> num_holders = NumHolders();
  std::stable_sort(candidates.begin(), candidates.end(), [&](int a, int b) {
    return num_holders.at(a) < num_holders.at(b);
  });
  candidates.resize(std::min(size, candidates.size()));
  std::sort(candidates.begin(), candidates.end());
  return candidates;
}

size_t CoreAllocator::State::NumFree(const CpuSet& candidates) const {
  const std::map<int, int> num_holders = NumHolders();
  return static_cast<size_t>(
      std::count_if(candidates.begin(), candidates.end(),
                    [&](int cpu) { return num_holders.at(cpu) == 0; }));
}

CpuSet CoreAllocator::State::ChooseFor(const CoreRequest& request) {
  if (!request.cpus.empty()) return request.cpus;
  const CpuSet candidates = Candidates(request.numa_node);
  const size_t free = NumFree(candidates);
  size_t size = free;
  if (request.threads > 0) {
    size = std::min(static_cast<size_t>(request.threads), candidates.size());
  } else if (free == 0) {
    size = std::max<size_t>(candidates.size() / (teams.size() + 1), 1);
  }
  return LeastHeld(candidates, size);
}

CoreAllocator::Lease::~Lease() {
  MutexLock lock(state_->mu);
  const auto at = state_->teams.find(holder_.owner);
  // Another load may have replaced the team meanwhile.
  if (at == state_->teams.end() || at->second.number != team_) return;
  if (--at->second.num_leases == 0) state_->teams.erase(at);
}

StatusOr<CoreRequest> CoresFor(const config::ModelSettings& settings) {
  CoreRequest request{config::ModelId(settings), settings.common.threads};
  request.numa_node = settings.common.numa_node;
  const std::string& list = settings.common.cpu_cores;
  if (!list.empty()) {
    auto cpus = config::ParseCpuList(list);
    if (!cpus) {
      return InvalidArgument("cpu_cores is '" + Shortened(list, 100) +
                             "' but needs CPUs written as 0-3,8")
          .At("cpu_cores");
    }
    request.cpus = *std::move(cpus);
  }
  if (request.threads > 0 && !request.cpus.empty() &&
      static_cast<size_t>(request.threads) != request.cpus.size()) {
    return InvalidArgument(
               "cpu_cores names " + std::to_string(request.cpus.size()) +
               " CPUs but threads is " + std::to_string(request.threads) +
               "; leave threads out, or make it the same")
        .At("cpu_cores");
  }
  return request;
}

CoreAllocator::CoreAllocator(const config::Topology& topology)
    : state_(std::make_shared<State>(topology)) {}

Status CoreAllocator::Check(const CoreRequest& request) const {
  const std::vector<config::Core>& cores = state_->topology.cores();
  const auto has_cpu = [&](int cpu) {
    return std::any_of(cores.begin(), cores.end(), [&](const auto& core) {
      return std::find(core.cpus.begin(), core.cpus.end(), cpu) !=
             core.cpus.end();
    });
  };
  for (const int cpu : request.cpus) {
    if (has_cpu(cpu)) continue;
    return InvalidArgument("cpu_cores has " + std::to_string(cpu) +
                           ", which this process may not use; 'millrace "
                           "topology' lists the CPUs that it may")
        .At("cpu_cores");
  }
  if (request.numa_node >= 0 && state_->Candidates(request.numa_node).empty()) {
    return InvalidArgument("numa_node is " + std::to_string(request.numa_node) +
                           ", which has no CPU that this process may use; "
                           "'millrace topology' lists the nodes")
        .At("numa_node");
  }
  return OkStatus();
}

// Those that say which cores come first: the others get what these leave.
void CoreAllocator::Reserve(const std::vector<CoreRequest>& requests) {
  MutexLock lock(state_->mu);
  const CpuSet& all = state_->all;
  const auto rank = [](const CoreRequest& request) {
    return !request.cpus.empty() ? 0 : request.numa_node >= 0 ? 1 : 2;
  };
  std::vector<const CoreRequest*> order;
  for (const CoreRequest& request : requests) order.push_back(&request);
  std::stable_sort(
      order.begin(), order.end(),
      [&](const auto* a, const auto* b) { return rank(*a) < rank(*b); });
  // Of those that say neither cores nor a number: what the named ones leave.
  size_t num_left = requests.size();
  size_t share = 0;
  for (const CoreRequest* request : order) {
    const auto wanted = static_cast<size_t>(request->threads);
    CpuSet cpus;
    if (rank(*request) == 2 && share == 0) {
      const size_t free = state_->NumFree(all);
      share = std::max<size_t>(
          free > 0 ? free / num_left : all.size() / requests.size(), 1);
    }
    --num_left;
    if (rank(*request) < 2) {
      cpus = state_->ChooseFor(*request);
    } else if (wanted > all.size() && requests.size() == 1) {
      // Asked for in so many words: every core allowed, none left to sockets.
      cpus = state_->topology.PhysicalCores(static_cast<int>(request->threads));
    } else {
      cpus = state_->LeastHeld(all, wanted > 0 ? wanted : share);
    }
    State::Team& team = state_->teams[request->owner];
    team.number = ++state_->num_teams;
    team.cpus = std::move(cpus);
  }
}

std::shared_ptr<const CoreAllocator::Lease> CoreAllocator::Take(
    const CoreRequest& request) {
  CoreHolder holder{request.owner, {}};
  int64_t team = 0;
  {
    MutexLock lock(state_->mu);
    auto at = state_->teams.find(request.owner);
    if (at == state_->teams.end() || !state_->Fits(at->second, request)) {
      if (at != state_->teams.end()) state_->teams.erase(at);
      CpuSet cpus = state_->ChooseFor(request);
      at = state_->teams.emplace(request.owner, State::Team{std::move(cpus)})
               .first;
      at->second.number = ++state_->num_teams;
    }
    ++at->second.num_leases;
    holder.cpus = at->second.cpus;
    team = at->second.number;
  }
  return std::make_shared<const Lease>(state_, std::move(holder), team);
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
