// Waits for the moments that the former names, under one lock.
#include "scheduler/batch_queue.h"

#include <algorithm>
#include <utility>

namespace millrace::scheduler {

Status BatchQueue::Post(std::unique_ptr<BatchJob> job) {
  MutexLock lock(mu_);
  if (closed_) return Unavailable("the model takes no new requests");
  RETURN_IF_ERROR(former_.Add(job));
  changed_.NotifyOne();
  return OkStatus();
}

void BatchQueue::Close() {
  MutexLock lock(mu_);
  closed_ = true;
  changed_.NotifyAll();
}

void BatchQueue::Wake() {
  MutexLock lock(mu_);
  changed_.NotifyAll();
}

BatchQueue::Batch BatchQueue::Take(const std::stop_token& stop) {
  Batch batch;
  MutexLock lock(mu_);
  while (true) {
    if (closed_) {
      batch.dropped = former_.Clear();
      batch.last = true;
      return batch;
    }
    if (stop.stop_requested()) {
      // Another instance may have slept through a Post that woke this one.
      changed_.NotifyOne();
      batch.last = true;
      return batch;
    }
    BatchFormer::Decision decision = former_.Form(clock_->Now());
    if (!decision.jobs.empty() || !decision.dropped.empty()) {
      batch.jobs = std::move(decision.jobs);
      batch.closed = decision.closed;
      batch.dropped = std::move(decision.dropped);
      running_ += static_cast<int32_t>(batch.jobs.size());
      // What is left may be for another instance.
      if (former_.size() > 0) changed_.NotifyOne();
      return batch;
    }
    if (decision.wake == kNever) {
      changed_.Wait(mu_);
    } else {
      changed_.WaitUntil(mu_, decision.wake);
    }
  }
}

bool BatchQueue::TryBegin(int32_t rows, Clock::Duration most) {
  MutexLock lock(mu_);
  const Clock::Duration row_time = former_.row_time();
  // Where nothing was computed yet, nothing is known.
  if (closed_ || former_.size() > 0 || row_time.count() == 0 ||
      row_time > most / std::max(rows, 1)) {
    return false;
  }
  ++running_;
  return true;
}

void BatchQueue::Abandon() {
  MutexLock lock(mu_);
  --running_;
}

void BatchQueue::Done(int32_t requests, int32_t rows,
                      Clock::Duration duration) {
  // The estimate falls at once and rises slowly: one batch that waited for its
  // plan or for the machine must not refuse those that follow.
  constexpr int64_t kRise = 8;
  MutexLock lock(mu_);
  running_ -= requests;
  const Clock::Duration row = duration / std::max(rows, 1);
  const Clock::Duration before = former_.row_time();
  former_.SetRowTime(before.count() == 0 || row < before
                         ? row
                         : before + (row - before) / kRise);
}

int32_t BatchQueue::waiting() const {
  MutexLock lock(mu_);
  return former_.size();
}

int32_t BatchQueue::running() const {
  MutexLock lock(mu_);
  return running_;
}

Clock::Duration BatchQueue::row_time() const {
  MutexLock lock(mu_);
  return former_.row_time();
}

}  // namespace millrace::scheduler
