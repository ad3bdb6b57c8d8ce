// Source: proc(5), section /proc/PID/stat.
#include "server/host_metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

#include "server/host_usage.h"
#include "server/thread_times.h"

namespace millrace::server {
namespace {

struct HostMetrics {
  explicit HostMetrics(MetricRegistry& registry);
  void Read();

  Counter cpu_seconds;
  Gauge resident;
  Gauge virtual_memory;
  Gauge open_fds;
  Gauge max_fds;
  Gauge start_time;
  Gauge threads;
  Gauge cpu;
  Gauge memory_total, memory_used, memory_available, memory_utilization;
  Gauge disk_total, disk_used, disk_available, disk_utilization;

 private:
  void ReadProcess();

  HostUsageReader usage_;
  ThreadTimes thread_times_;
};

HostMetrics::HostMetrics(MetricRegistry& registry) : thread_times_(registry) {
  cpu_seconds = registry.AddCounter("process_cpu_seconds_total",
                                    "CPU time of this process.");
  resident = registry.AddGauge("process_resident_memory_bytes",
                               "Memory of this process that is resident.");
  virtual_memory = registry.AddGauge("process_virtual_memory_bytes",
                                     "Address space of this process.");
  open_fds = registry.AddGauge("process_open_fds", "Open files.");
  max_fds = registry.AddGauge("process_max_fds", "Files that may be open.");
  start_time = registry.AddGauge("process_start_time_seconds",
                                 "Unix time at which this process started.");
  threads = registry.AddGauge("process_threads", "Threads of this process.");
  cpu = registry.AddGauge(
      "millrace_host_cpu_utilization_ratio",
      "Share of the machine's cores that was busy since the last scrape.");
  const auto memory = [&](const char* state) {
    return registry.AddGauge("millrace_host_memory_bytes",
                             "Memory of the machine by state.",
                             {{"state", state}});
  };
  memory_total = memory("total");
  memory_used = memory("used");
  memory_available = memory("available");
  memory_utilization =
      registry.AddGauge("millrace_host_memory_utilization_ratio",
                        "Share of the machine's memory that is in use.");
  const auto disk = [&](const char* state) {
    return registry.AddGauge("millrace_host_disk_bytes",
                             "The root file system by state.",
                             {{"state", state}});
  };
  disk_total = disk("total");
  disk_used = disk("used");
  disk_available = disk("available");
  disk_utilization =
      registry.AddGauge("millrace_host_disk_utilization_ratio",
                        "Share of the root file system that is in use.");
}

void HostMetrics::Read() {
  ReadProcess();
  thread_times_.Read();
  const HostUsage usage = usage_.Read();
  cpu.Set(usage.cpu);
  memory_total.Set(usage.memory_total);
  memory_available.Set(usage.memory_available);
  memory_used.Set(usage.memory_used());
  memory_utilization.Set(usage.memory_share());
  disk_total.Set(usage.disk_total);
  disk_used.Set(usage.disk_used());
  disk_available.Set(usage.disk_available);
  disk_utilization.Set(usage.disk_share());
}

void HostMetrics::ReadProcess() {
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) == 0) {
    const auto seconds = [](const timeval& time) {
      return static_cast<double>(time.tv_sec) +
             static_cast<double>(time.tv_usec) * 1e-6;
    };
    const double spent = seconds(usage.ru_utime) + seconds(usage.ru_stime);
    cpu_seconds.Add(std::max(0.0, spent - cpu_seconds.value()));
  }
  std::ifstream file("/proc/self/stat");
  std::string line;
  std::getline(file, line);
  // "PID (the name) S PPID …": the name may hold spaces, and the state is a
  // letter, so the numbers begin four bytes behind the last parenthesis.
  const size_t behind = line.rfind(')');
  if (behind != std::string::npos && line.size() > behind + 4) {
    std::vector<double> fields;
    const std::string rest = line.substr(behind + 4);
    size_t at = 0;
    while (at < rest.size()) {
      const size_t end = std::min(rest.find(' ', at), rest.size());
      fields.push_back(std::strtod(rest.c_str() + at, nullptr));
      at = end + 1;
    }
    // Fields 20, 22, 23, 24 of proc(5); the first one here is 4.
    constexpr size_t kFirst = 4;
    if (fields.size() > 24 - kFirst) {
      threads.Set(fields[20 - kFirst]);
      std::ifstream stat("/proc/stat");
      double boot = 0;
      for (std::string word; stat >> word;) {
        if (word == "btime") stat >> boot;
      }
      const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
      start_time.Set(boot + fields[22 - kFirst] / ticks);
      virtual_memory.Set(fields[23 - kFirst]);
      resident.Set(fields[24 - kFirst] *
                   static_cast<double>(sysconf(_SC_PAGESIZE)));
    }
  }
  std::error_code ignored;
  const std::filesystem::directory_iterator files("/proc/self/fd", ignored);
  open_fds.Set(static_cast<double>(std::distance(begin(files), end(files))));
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    max_fds.Set(static_cast<double>(limit.rlim_cur));
  }
}

}  // namespace

std::shared_ptr<void> ExportHostMetrics(MetricRegistry& registry) {
  auto metrics = std::make_shared<HostMetrics>(registry);
  return registry.OnScrape([metrics] { metrics->Read(); });
}

}  // namespace millrace::server
