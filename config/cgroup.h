// What the control groups of this process allow: CPU quota, CPU set, memory.
// Versions 1, 2 and the hybrid of both; each limit is the tightest between the
// group of the process and the root of its hierarchy, because a parent's limit
// binds its children without showing in their files.
//
// Private to topology.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::config {

struct CgroupLimits {
  std::optional<double> cpus;           // quota / period
  std::optional<int64_t> memory_bytes;  // less is reclaimed or killed
  std::optional<std::vector<int>> cpu_set;
};

// Reads `root`/proc/self/{cgroup,mountinfo} and the files they lead to. What
// cannot be read limits nothing.
CgroupLimits ReadCgroupLimits(const std::string& root);

// "0-3,8" as the kernel writes lists; nothing when it is no such list.
std::optional<std::vector<int>> ParseCpuList(std::string_view text);

}  // namespace millrace::config
