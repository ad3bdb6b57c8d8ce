// The requests that wait for a batcher's thread, oldest first.
//
// Bounded by the places of admission, one of which every job holds. A job
// leaves by Take, once: to be computed, or because nobody waits for it any
// more.
//
// Post, Close, waiting, running: any thread. Take: the batcher's thread.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "config/base/clock.h"
#include "config/base/mutex.h"
#include "config/base/status.h"
#include "scheduler/batcher.h"
#include "scheduler/reservation.h"

namespace millrace::scheduler {

struct BatchJob {
  BatchTask task;
  Reservation place;
  Clock::Time submitted;
};

class BatchQueue {
 public:
  explicit BatchQueue(const Clock* clock) : clock_(clock) {}

  // UNAVAILABLE once closed.
  Status Post(std::unique_ptr<BatchJob> job);
  void Close();

  struct Batch {
    std::vector<std::unique_ptr<BatchJob>> jobs;
    BatchClosed closed = BatchClosed::kFull;
    // Left, late, or (last) all that waited when the queue closed.
    std::vector<std::unique_ptr<BatchJob>> dropped;
    bool last = false;
  };
  // Sleeps until there is something to do. The batch before it is done then.
  Batch Take();

  int32_t waiting() const;
  int32_t running() const;

 private:
  const Clock* const clock_;

  mutable Mutex mu_;
  CondVar changed_;
  std::deque<std::unique_ptr<BatchJob>> jobs_ GUARDED_BY(mu_);
  int32_t running_ GUARDED_BY(mu_) = 0;
  bool closed_ GUARDED_BY(mu_) = false;
};

}  // namespace millrace::scheduler
