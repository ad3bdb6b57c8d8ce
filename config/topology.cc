// hwloc tells the cores, the control groups and the scheduler's affinity mask
// tell which are ours. A quota is not a set: it lowers how many cores are
// worth a thread (a team larger than its quota is stopped for the rest of each
// period, barrier and all), never which.
#include "config/topology.h"

#include <hwloc.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <tuple>

#include "config/cgroup.h"

namespace millrace::config {
namespace {

struct TopologyDeleter {
  void operator()(hwloc_topology* topology) const {
    hwloc_topology_destroy(topology);
  }
};
using HwlocTopology = std::unique_ptr<hwloc_topology, TopologyDeleter>;

StatusOr<HwlocTopology> Discover(const std::string& synthetic) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) {
    return Internal("hwloc cannot start; out of memory?");
  }
  HwlocTopology topology(raw);
  if (!synthetic.empty() &&
      hwloc_topology_set_synthetic(raw, synthetic.c_str()) != 0) {
    return InvalidArgument("'" + synthetic +
                           "' is no hwloc synthetic topology; an example is "
                           "'pack:2 l3:1 core:4 pu:2'");
  }
  if (hwloc_topology_load(raw) != 0) {
    return Internal("hwloc cannot read the machine's topology from /sys");
  }
  return topology;
}

int AncestorIndex(hwloc_topology_t topology, hwloc_obj_t obj,
                  hwloc_obj_type_t type) {
  const hwloc_obj_t found = hwloc_get_ancestor_obj_by_type(topology, type, obj);
  return found == nullptr ? 0 : static_cast<int>(found->logical_index);
}

// Hardware threads that this process may run on; nothing: no restriction.
std::optional<std::vector<int>> Affinity() {
  for (int capacity = 1024; capacity <= 1 << 16; capacity *= 2) {
    cpu_set_t* set = CPU_ALLOC(capacity);
    const size_t bytes = CPU_ALLOC_SIZE(capacity);
    const bool got = sched_getaffinity(0, bytes, set) == 0;
    std::vector<int> cpus;
    for (int cpu = 0; got && cpu < capacity; ++cpu) {
      if (CPU_ISSET_S(cpu, bytes, set)) cpus.push_back(cpu);
    }
    CPU_FREE(set);
    if (got) return cpus;
    if (errno != EINVAL) break;  // EINVAL: the kernel's mask is larger
  }
  return std::nullopt;
}

bool Allowed(const std::optional<std::vector<int>>& set, int cpu) {
  return !set || std::binary_search(set->begin(), set->end(), cpu);
}

int64_t MachineMemoryBytes(const std::string& root) {
  std::ifstream meminfo(root + "/proc/meminfo");
  std::string name;
  int64_t kib = 0;
  if (meminfo >> name >> kib && name == "MemTotal:" && kib > 0) {
    return kib * 1024;
  }
  return int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE);
}

// The allowed cores in the machine's own order.
std::vector<Core> AllowedCores(hwloc_topology_t topology,
                               const std::optional<std::vector<int>>& affinity,
                               const std::optional<std::vector<int>>& cgroup) {
  // A virtual machine may show hardware threads without cores.
  const hwloc_obj_type_t unit =
      hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE
                                                             : HWLOC_OBJ_PU;
  const bool has_l3 = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_L3CACHE) > 0;
  std::vector<Core> cores;
  hwloc_obj_t obj = nullptr;
  while ((obj = hwloc_get_next_obj_by_type(topology, unit, obj)) != nullptr) {
    Core core;
    for (int cpu = hwloc_bitmap_first(obj->cpuset); cpu >= 0;
         cpu = hwloc_bitmap_next(obj->cpuset, cpu)) {
      if (Allowed(affinity, cpu) && Allowed(cgroup, cpu)) {
        core.cpus.push_back(cpu);
      }
    }
    if (core.cpus.empty()) continue;
    const int node =
        obj->nodeset == nullptr ? -1 : hwloc_bitmap_first(obj->nodeset);
    core.numa_node = std::max(node, 0);
    core.socket = AncestorIndex(topology, obj, HWLOC_OBJ_PACKAGE);
    core.l3_group =
        has_l3 ? AncestorIndex(topology, obj, HWLOC_OBJ_L3CACHE) : core.socket;
    cores.push_back(std::move(core));
  }
  return cores;
}

}  // namespace

StatusOr<Topology> Topology::Detect(const Sources& sources) {
  ASSIGN_OR_RETURN(const HwlocTopology machine,
                   Discover(sources.hwloc_synthetic));
  // A synthetic machine is not bound by where the test runs.
  const bool real = sources.hwloc_synthetic.empty() && sources.root.empty();
  CgroupLimits limits;
  if (real || !sources.root.empty()) limits = ReadCgroupLimits(sources.root);

  Topology topology;
  topology.cores_ = AllowedCores(
      machine.get(), real ? Affinity() : std::nullopt, limits.cpu_set);
  if (topology.cores_.empty()) {
    return FailedPrecondition(
        "no CPU is left for this process: its affinity mask and the cpuset of "
        "its control group share none with this machine; widen one of them");
  }
  const int num_cores = static_cast<int>(topology.cores_.size());
  topology.cpu_limit_ = num_cores;
  if (limits.cpus && *limits.cpus < num_cores) {
    // Slack for quotas written as 0.99999.
    topology.cpu_limit_ =
        std::max(1, static_cast<int>(std::floor(*limits.cpus + 1e-3)));
  }
  topology.memory_limit_bytes_ = MachineMemoryBytes(sources.root);
  if (limits.memory_bytes) {
    topology.memory_limit_bytes_ =
        std::min(topology.memory_limit_bytes_, *limits.memory_bytes);
  }
  return topology;
}

CpuSet Topology::PhysicalCores(int n) const {
  const size_t wanted = static_cast<size_t>(n > 0 ? n : cpu_limit_);
  // Larger NUMA nodes and L3 groups first: a team that fits into one is then
  // never spread because a small one came first.
  const auto in_node = [&](const Core& core) {
    return std::count_if(cores_.begin(), cores_.end(), [&](const Core& other) {
      return other.numa_node == core.numa_node;
    });
  };
  const auto in_l3 = [&](const Core& core) {
    return std::count_if(cores_.begin(), cores_.end(), [&](const Core& other) {
      return other.numa_node == core.numa_node &&
             other.l3_group == core.l3_group;
    });
  };
  using Key = std::tuple<int64_t, int, int64_t, int, int>;
  std::vector<Key> order;
  for (const Core& core : cores_) {
    order.emplace_back(-in_node(core), core.numa_node, -in_l3(core),
                       core.l3_group, core.cpus.front());
  }
  std::sort(order.begin(), order.end());
  if (order.size() > wanted) order.resize(wanted);
  CpuSet cpus;
  for (const Key& key : order) cpus.push_back(std::get<4>(key));
  std::sort(cpus.begin(), cpus.end());
  return cpus;
}

std::string Topology::Describe() const {
  std::ostringstream out;
  out << cores_.size() << " physical cores allowed, CPU limit " << cpu_limit_
      << ", memory limit " << (memory_limit_bytes_ >> 20) << " MiB\n";
  for (const Core& core : cores_) {
    out << "  socket " << core.socket << "  node " << core.numa_node << "  L3 "
        << core.l3_group << "  cpus";
    for (const int cpu : core.cpus) out << ' ' << cpu;
    out << '\n';
  }
  return out.str();
}

Status PinThisThread(const CpuSet& cpus, const std::string& name) {
  if (!name.empty()) {
    pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
  }
  if (cpus.empty()) return OkStatus();
  std::string shown;
  for (const int cpu : cpus) {
    if (cpu < 0) {
      return InvalidArgument("CPU " + std::to_string(cpu) + " does not exist");
    }
    shown += (shown.empty() ? "" : ",") + std::to_string(cpu);
  }
  const int count = *std::max_element(cpus.begin(), cpus.end()) + 1;
  cpu_set_t* set = CPU_ALLOC(count);
  if (set == nullptr) return ResourceExhausted("no memory for a CPU set");
  const size_t bytes = CPU_ALLOC_SIZE(count);
  CPU_ZERO_S(bytes, set);
  for (const int cpu : cpus) CPU_SET_S(cpu, bytes, set);
  const int error = pthread_setaffinity_np(pthread_self(), bytes, set);
  CPU_FREE(set);
  if (error == 0) return OkStatus();
  return FailedPrecondition("thread '" + name + "' cannot be pinned to CPU " +
                            shown + ": " + std::strerror(error));
}

}  // namespace millrace::config
