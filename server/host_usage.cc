#include "server/host_usage.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace millrace::server {
namespace {

constexpr double kKiB = 1024;

void ReadMemory(HostUsage& usage) {
  std::ifstream file("/proc/meminfo");
  for (std::string name; file >> name;) {
    double kib = 0;
    file >> kib;
    if (name == "MemTotal:") usage.memory_total = kib * kKiB;
    if (name == "MemAvailable:") usage.memory_available = kib * kKiB;
    file.ignore(80, '\n');
  }
}

void ReadDisk(HostUsage& usage) {
  struct statvfs disk {};
  if (statvfs("/", &disk) != 0 || disk.f_blocks == 0) return;
  const auto block = static_cast<double>(disk.f_frsize);
  usage.disk_total = static_cast<double>(disk.f_blocks) * block;
  usage.disk_free = static_cast<double>(disk.f_bfree) * block;
  usage.disk_available = static_cast<double>(disk.f_bavail) * block;
}

}  // namespace

double HostUsageReader::ReadCpu() {
  std::ifstream file("/proc/stat");
  std::string name;
  file >> name;
  double all = 0;
  double idle = 0;
  // user nice system idle iowait irq softirq steal
  for (int i = 0; i < 8; ++i) {
    double ticks = 0;
    if (!(file >> ticks)) return cpu_;
    all += ticks;
    if (i == 3 || i == 4) idle += ticks;
  }
  const double passed = all - all_;
  if (all_ > 0 && passed > 0) {
    cpu_ = std::clamp((all - idle - busy_) / passed, 0.0, 1.0);
  }
  all_ = all;
  busy_ = all - idle;
  return cpu_;
}

HostUsage HostUsageReader::Read() {
  HostUsage usage;
  usage.cpu = ReadCpu();
  ReadMemory(usage);
  ReadDisk(usage);
  return usage;
}

}  // namespace millrace::server
