// The CPUs of each instance of a graph and the NUMA nodes that they are of.
// Both the plan of `millrace topology` and a server's statistics are computed
// here.
#pragma once

#include <cstdint>
#include <vector>

#include "config/topology.h"

namespace millrace::server {

struct InstancePlace {
  config::CpuSet cpus;          // empty: not pinned
  std::vector<int> numa_nodes;  // of these CPUs, ascending
};

// Of `count` instances of a model with these CPUs, as InstanceTeams divides
// them.
std::vector<InstancePlace> PlacesOf(const config::CpuSet& cpus, int64_t count,
                                    const config::Topology& topology);

// A servable whose instances have CPUs of their own. Thread-safe.
class Placed {
 public:
  virtual ~Placed() = default;
  virtual std::vector<InstancePlace> places() const = 0;
};

}  // namespace millrace::server
