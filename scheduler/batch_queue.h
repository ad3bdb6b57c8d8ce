// The requests that wait for a batcher's instances: a BatchFormer that several
// threads share.
//
// Bounded by the places of admission, one of which every job holds. A job
// leaves by Take, once: to be computed, or as its client left or its deadline
// passed. Each instance takes its next batch when it has computed the last one.
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <stop_token>
#include <vector>

#include "config/base/clock.h"
#include "config/base/mutex.h"
#include "config/base/status.h"
#include "scheduler/batch_former.h"

namespace millrace::scheduler {

class BatchQueue {
 public:
  BatchQueue(const BatchingOptions& options, const Clock* clock)
      : clock_(clock), former_(options) {}

  // UNAVAILABLE once closed, RESOURCE_EXHAUSTED where the request's priority
  // level is full.
  Status Post(std::unique_ptr<BatchJob> job);
  // What waits is dropped by the next Take; every Take ends with `last`.
  void Close();

  struct Batch {
    std::vector<std::unique_ptr<BatchJob>> jobs;
    BatchClosed closed = BatchClosed::kIdle;
    std::vector<BatchFormer::Dropped> dropped;
    // The queue was closed, or the caller was asked to stop: nothing follows.
    bool last = false;
  };
  // Sleeps until there is something to do. Requests of the batch count as
  // running until Done.
  Batch Take(const std::stop_token& stop = {});
  // Whether a request of so many rows may be computed at once by its caller,
  // outside the queue: nothing waits that would come before it, and it takes
  // `most` at most. It counts as running until Done or Abandon.
  bool TryBegin(int32_t rows, Clock::Duration most);
  void Abandon();
  // The batch of so many requests and rows has been computed in so long a time.
  void Done(int32_t requests, int32_t rows, Clock::Duration duration);
  // Wakes all that sleep in Take, so that they see their stop tokens.
  void Wake();

  int32_t waiting() const;
  int32_t running() const;
  // What one row has taken lately; 0 before anything was computed.
  Clock::Duration row_time() const;

 private:
  const Clock* const clock_;

  mutable Mutex mu_;
  CondVar changed_;
  BatchFormer former_ GUARDED_BY(mu_);
  int32_t running_ GUARDED_BY(mu_) = 0;
  bool closed_ GUARDED_BY(mu_) = false;
};

}  // namespace millrace::scheduler
