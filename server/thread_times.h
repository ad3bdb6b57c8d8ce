// CPU time of this process by pool of threads: the handlers, the sockets, the
// team of each model. With the number of threads of a pool this is its
// utilization. Read from /proc at each scrape; threads count nothing
// themselves.
//
// One thread at a time.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "config/base/metrics.h"

namespace millrace::server {

// "handler" of "handler-1", "llm" of "llm/0"; "other" of names without a
// number: threads that are in no pool, and those of libraries.
std::string PoolOfThread(std::string_view name);

class ThreadTimes {
 public:
  explicit ThreadTimes(MetricRegistry& registry) : registry_(registry) {}
  // Adds what threads have spent since the last call. What a thread spends
  // after the last call before its end is not seen.
  void Read();

 private:
  struct Pool {
    Counter seconds;
    Gauge threads;
  };

  MetricRegistry& registry_;
  std::map<std::string, Pool> pools_;
  std::map<std::string, double> spent_;  // seconds, by the thread's id
};

}  // namespace millrace::server
