#include "server/lifecycle/placement.h"

#include <algorithm>
#include <set>
#include <utility>

#include "server/lifecycle/batching.h"

namespace millrace::server {

std::vector<InstancePlace> PlacesOf(const config::CpuSet& cpus, int64_t count,
                                    const config::Topology& topology) {
  std::vector<InstancePlace> places;
  for (config::CpuSet& team : InstanceTeams(ByNode(cpus, topology), count)) {
    std::set<int> nodes;
    for (const config::Core& core : topology.cores()) {
      const bool is_ours =
          std::any_of(core.cpus.begin(), core.cpus.end(), [&](int cpu) {
            return std::find(team.begin(), team.end(), cpu) != team.end();
          });
      if (is_ours) nodes.insert(core.numa_node);
    }
    places.push_back({std::move(team), {nodes.begin(), nodes.end()}});
  }
  return places;
}

}  // namespace millrace::server
