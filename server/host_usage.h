// How busy and how full the machine is, read from /proc and statvfs.
// Sources: proc(5), sections /proc/stat and /proc/meminfo.
#pragma once

namespace millrace::server {

// What cannot be read stays at zero.
struct HostUsage {
  double cpu = 0;  // share of the cores that was busy since the last reading
  double memory_total = 0, memory_available = 0;             // bytes
  double disk_total = 0, disk_free = 0, disk_available = 0;  // bytes, of "/"

  double memory_used() const { return memory_total - memory_available; }
  double disk_used() const { return disk_total - disk_free; }
  double memory_share() const {
    return memory_total > 0 ? memory_used() / memory_total : 0;
  }
  double disk_share() const {
    return disk_total > 0 ? disk_used() / disk_total : 0;
  }
};

// Not thread-safe.
class HostUsageReader {
 public:
  HostUsageReader() { ReadCpu(); }
  HostUsage Read();

 private:
  double ReadCpu();

  double busy_ = 0;  // ticks of all cores at the last reading
  double all_ = 0;
  double cpu_ = 0;
};

}  // namespace millrace::server
