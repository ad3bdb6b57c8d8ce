// What the machine has and what this process may use of it: sockets, NUMA
// nodes, shared L3 groups, SMT siblings (from hwloc), less what cgroup v1/v2
// CPU quotas and cpusets and the memory limit allow.
//
//   ASSIGN_OR_RETURN(Topology topology, Topology::Detect());
//   CpuSet team = topology.PhysicalCores(2);
//
// Immutable after Detect.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/base/status.h"

namespace millrace::config {

// Operating-system CPU numbers, ascending. Empty means "not pinned".
using CpuSet = std::vector<int>;

struct Core {
  std::vector<int> cpus;  // hardware threads, the first is the one we use
  int numa_node = 0;
  int socket = 0;
  int l3_group = 0;
};

class Topology {
 public:
  // Where facts come from; tests give an hwloc synthetic description
  // ("numa:2 core:4 pu:2") and a faked root of /proc and /sys/fs/cgroup.
  struct Sources {
    std::string hwloc_synthetic;  // empty: this machine
    std::string root;             // prefix of /proc and /sys, empty: none
  };
  static StatusOr<Topology> Detect() { return Detect(Sources{}); }
  static StatusOr<Topology> Detect(const Sources& sources);

  const std::vector<Core>& cores() const { return cores_; }  // allowed ones
  // Whole CPUs that the cgroup's quota allows, at least 1; cores().size() when
  // there is no quota.
  int cpu_limit() const { return cpu_limit_; }
  // The smaller of the machine's memory and the cgroup's limit.
  int64_t memory_limit_bytes() const { return memory_limit_bytes_; }

  // One CPU of each of the first n allowed physical cores, filling one NUMA
  // node and one L3 group before the next; n <= 0 means as many as cpu_limit
  // allows.
  CpuSet PhysicalCores(int n) const;

  // For `millrace topology` and the log.
  std::string Describe() const;

 private:
  std::vector<Core> cores_;
  int cpu_limit_ = 1;
  int64_t memory_limit_bytes_ = 0;
};

// Binds the calling thread; a name of at most 15 characters shows in top -H.
// An empty set only names it. Failure to pin is a Status, not a stop.
Status PinThisThread(const CpuSet& cpus, const std::string& name);

}  // namespace millrace::config
