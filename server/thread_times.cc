// Source: proc(5), sections /proc/PID/task/TID/comm and stat.
#include "server/thread_times.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

namespace millrace::server {
namespace {

std::string FirstLine(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Of a line of `stat`, in clock ticks. The thread's name, in parentheses, may
// hold spaces; the state is the third field, user and system time are the 14th
// and 15th.
double Ticks(const std::string& line) {
  const size_t behind = line.rfind(')');
  if (behind == std::string::npos) return 0;
  std::istringstream fields(line.substr(behind + 1));
  std::string skipped;
  for (int field = 3; field < 14; ++field) fields >> skipped;
  double user = 0;
  double system = 0;
  fields >> user >> system;
  return fields ? user + system : 0;
}

}  // namespace

std::string PoolOfThread(std::string_view name) {
  const size_t digit = name.find_last_not_of("0123456789");
  const bool is_numbered = digit != name.npos && digit > 0 &&
                           digit + 1 < name.size() &&
                           (name[digit] == '-' || name[digit] == '/');
  return is_numbered ? std::string(name.substr(0, digit)) : "other";
}

void ThreadTimes::Read() {
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  std::map<std::string, double> spent;
  std::map<std::string, std::pair<double, int>> pools;  // added, threads
  std::error_code ignored;
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/self/task", ignored)) {
    const std::string id = task.path().filename();
    // A thread that ended meanwhile has neither; its time so far is known.
    const std::string name = FirstLine(task.path() / "comm");
    if (name.empty()) continue;
    const double seconds = Ticks(FirstLine(task.path() / "stat")) / ticks;
    const auto before = spent_.find(id);
    auto& [added, threads] = pools[PoolOfThread(name)];
    // An id may be another thread's by now, which has spent less.
    const double known =
        before == spent_.end() || before->second > seconds ? 0 : before->second;
    added += seconds - known;
    ++threads;
    spent[id] = seconds;
  }
  spent_ = std::move(spent);
  for (auto& [name, pool] : pools_) pool.threads.Set(0);
  for (const auto& [name, sums] : pools) {
    auto at = pools_.find(name);
    if (at == pools_.end()) {
      const MetricLabels labels = {{"pool", name}};
      Pool made = {registry_.AddCounter("millrace_pool_cpu_seconds_total",
                                        "CPU time of a pool's threads; over "
                                        "millrace_pool_threads its "
                                        "utilization.",
                                        labels),
                   registry_.AddGauge("millrace_pool_threads",
                                      "Threads of a pool.", labels)};
      at = pools_.emplace(name, std::move(made)).first;
    }
    at->second.seconds.Add(sums.first);
    at->second.threads.Set(sums.second);
  }
}

}  // namespace millrace::server
