// /proc/self/cgroup says which group, mountinfo says where its hierarchy is
// mounted. In a container the mount often shows a subtree only: its own root is
// then cut off the path. Sources: cgroups(7), proc(5), the kernel's
// admin-guide/cgroup-v1 and cgroup-v2.
#include "config/cgroup.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <utility>

namespace millrace::config {
namespace {

constexpr int kMaxCpus = 1 << 16;

std::optional<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  std::string out = text.str();
  while (!out.empty() && (out.back() == '\n' || out.back() == ' ')) {
    out.pop_back();
  }
  return out;
}

std::vector<std::string> Split(std::string_view text, char at) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (begin <= text.size()) {
    size_t end = text.find(at, begin);
    if (end == std::string_view::npos) end = text.size();
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

bool Holds(const std::vector<std::string>& list, std::string_view word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

template <typename Number>
std::optional<Number> ParseNumber(std::string_view text) {
  Number value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

// Where a hierarchy is mounted and which part of it the mount shows.
struct Mount {
  std::string point;
  std::string shown = "/";
};

// controller is empty for version 2.
std::optional<Mount> FindMount(const std::string& root,
                               const std::string& controller) {
  const auto table = ReadFile(root + "/proc/self/mountinfo");
  if (!table) return std::nullopt;
  for (const std::string& line : Split(*table, '\n')) {
    // id parent major:minor root point options… - type source super-options
    const std::vector<std::string> words = Split(line, ' ');
    const auto dash = std::find(words.begin(), words.end(), "-");
    if (words.size() < 6 || words.end() - dash < 4) continue;
    const bool match =
        controller.empty()
            ? dash[1] == "cgroup2"
            : dash[1] == "cgroup" && Holds(Split(dash[3], ','), controller);
    if (match) return Mount{words[4], words[3]};
  }
  return std::nullopt;
}

// Without a readable mountinfo: where systems put it by convention.
Mount UsualMount(const std::string& root, const std::string& controller) {
  if (!controller.empty()) return {"/sys/fs/cgroup/" + controller};
  const bool hybrid =
      ReadFile(root + "/sys/fs/cgroup/unified/cgroup.procs") != std::nullopt;
  return {hybrid ? "/sys/fs/cgroup/unified" : "/sys/fs/cgroup"};
}

// The directories from the process's own group up to the mount's top.
std::vector<std::string> GroupDirs(const std::string& root,
                                   const std::string& controller) {
  const auto groups = ReadFile(root + "/proc/self/cgroup");
  if (!groups) return {};
  for (const std::string& line : Split(*groups, '\n')) {
    // id:controller,controller:path; version 2 is "0::path".
    const size_t first = line.find(':');
    if (first == std::string::npos) continue;
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string names = line.substr(first + 1, second - first - 1);
    if (controller.empty() ? !names.empty()
                           : !Holds(Split(names, ','), controller)) {
      continue;
    }
    const Mount mount =
        FindMount(root, controller).value_or(UsualMount(root, controller));
    std::string path = line.substr(second + 1);
    if (mount.shown != "/") {
      const bool inside = (path + "/").starts_with(mount.shown + "/");
      path = inside ? path.substr(mount.shown.size()) : "/";
    }
    if (path.find("..") != std::string::npos) path = "/";
    while (path.ends_with('/')) path.pop_back();
    std::vector<std::string> dirs;
    while (!path.empty()) {
      dirs.push_back(root + mount.point + path);
      path.erase(path.rfind('/'));
    }
    dirs.push_back(root + mount.point);
    return dirs;
  }
  return {};
}

template <typename Number>
void Tighten(std::optional<Number>& limit, std::optional<Number> other) {
  if (other && (!limit || *other < *limit)) limit = other;
}

std::optional<double> QuotaV1(const std::string& dir) {
  const auto quota =
      ParseNumber<double>(ReadFile(dir + "/cpu.cfs_quota_us").value_or(""));
  const auto period =
      ParseNumber<double>(ReadFile(dir + "/cpu.cfs_period_us").value_or(""));
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return *quota / *period;
}

std::optional<double> QuotaV2(const std::string& dir) {
  const auto words = Split(ReadFile(dir + "/cpu.max").value_or(""), ' ');
  if (words.size() != 2) return std::nullopt;
  const auto quota = ParseNumber<double>(words[0]);  // fails for "max"
  const auto period = ParseNumber<double>(words[1]);
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return *quota / *period;
}

// "max" and version 1's "no limit" (2^63 less a page) limit nothing.
std::optional<int64_t> Bytes(const std::string& file) {
  const auto bytes = ParseNumber<int64_t>(ReadFile(file).value_or(""));
  if (!bytes || *bytes <= 0 || *bytes >= int64_t{1} << 62) return std::nullopt;
  return bytes;
}

void Intersect(std::optional<std::vector<int>>& set, const std::string& file) {
  const auto text = ReadFile(file);
  if (!text || text->empty()) return;
  const auto cpus = ParseCpuList(*text);
  if (!cpus) return;
  if (!set) {
    set = *cpus;
    return;
  }
  std::vector<int> both;
  std::set_intersection(set->begin(), set->end(), cpus->begin(), cpus->end(),
                        std::back_inserter(both));
  set = std::move(both);
}

}  // namespace

std::optional<std::vector<int>> ParseCpuList(std::string_view text) {
  std::vector<int> cpus;
  for (const std::string& part : Split(text, ',')) {
    const size_t dash = part.find('-');
    const auto first = ParseNumber<int>(std::string_view(part).substr(0, dash));
    const auto last =
        dash == std::string::npos
            ? first
            : ParseNumber<int>(std::string_view(part).substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || *last >= kMaxCpus) {
      return std::nullopt;
    }
    for (int cpu = *first; cpu <= *last; ++cpu) cpus.push_back(cpu);
  }
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  return cpus;
}

CgroupLimits ReadCgroupLimits(const std::string& root) {
  CgroupLimits limits;
  for (const std::string& dir : GroupDirs(root, "")) {
    Tighten(limits.cpus, QuotaV2(dir));
    Tighten(limits.memory_bytes, Bytes(dir + "/memory.max"));
    Tighten(limits.memory_bytes, Bytes(dir + "/memory.high"));
    Intersect(limits.cpu_set, dir + "/cpuset.cpus.effective");
  }
  for (const std::string& dir : GroupDirs(root, "cpu")) {
    Tighten(limits.cpus, QuotaV1(dir));
  }
  for (const std::string& dir : GroupDirs(root, "memory")) {
    Tighten(limits.memory_bytes, Bytes(dir + "/memory.limit_in_bytes"));
  }
  for (const std::string& dir : GroupDirs(root, "cpuset")) {
    Intersect(limits.cpu_set, dir + "/cpuset.effective_cpus");
    Intersect(limits.cpu_set, dir + "/cpuset.cpus");
  }
  return limits;
}

}  // namespace millrace::config
