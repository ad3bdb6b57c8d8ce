// Counts of one version of a model since it was loaded, as KServe v2's
// statistics extension defines them. Times are sums in nanoseconds.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "scheduler/counted_time.h"

namespace millrace::server {

struct CountedNs {
  int64_t count = 0;
  int64_t ns = 0;
};

inline CountedNs InNs(const scheduler::CountedTime& time) {
  return {
      time.count,
      std::chrono::duration_cast<std::chrono::nanoseconds>(time.total).count()};
}

struct ModelStatistics {
  int64_t last_inference_ms = 0;  // Unix time; 0: none yet
  int64_t inference_count = 0;    // rows computed
  int64_t execution_count = 0;    // batches computed
  // By request; queue and compute of successes only.
  CountedNs success, fail, queue, compute_input, compute_infer, compute_output;
  // Of the response cache; hits are successes, too.
  CountedNs cache_hit, cache_miss;

  struct OfBatch {
    int64_t rows = 0;
    CountedNs compute_input, compute_infer, compute_output;
  };
  std::vector<OfBatch> batches;  // by rows, ascending
};

}  // namespace millrace::server
