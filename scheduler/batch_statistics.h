// Counts of one model since it was loaded, as the statistics extension of
// KServe v2 defines them (Triton, docs/protocol/extension_statistics.md): a
// request of a batch counts the whole time of its batch.
#pragma once

#include <cstdint>
#include <map>

#include "config/base/clock.h"
#include "config/base/mutex.h"
#include "scheduler/batch_job.h"
#include "scheduler/counted_time.h"

namespace millrace::scheduler {

struct BatchCounts {
  int64_t inferences = 0;         // rows computed
  int64_t executions = 0;         // batches computed
  int64_t last_inference_ms = 0;  // Unix time; 0: none yet

  // By request. `queue` and what follows count successes only.
  CountedTime success, failure, cancelled, rejected;
  CountedTime queue, compute_input, compute_infer, compute_output;

  struct OfSize {
    CountedTime compute_input, compute_infer, compute_output;
  };
  std::map<int32_t, OfSize> by_batch_rows;
};

// Thread-safe.
class BatchStatistics {
 public:
  void Computed(int32_t rows, const BatchTimes& times);
  // A request's ending, so long after it was submitted; `times` of successes.
  void Ended(const Status& status, Clock::Duration total,
             const BatchTimes& times);
  void Refused();

  BatchCounts counts() const;

 private:
  mutable Mutex mu_;
  BatchCounts counts_ GUARDED_BY(mu_);
};

}  // namespace millrace::scheduler
