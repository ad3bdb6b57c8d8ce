// A reader would guess that only the first job is looked at: all are, whenever
// the thread comes by, so that the places of those who left are free at once.
#include "scheduler/batch_queue.h"

#include <algorithm>
#include <utility>

namespace millrace::scheduler {

Status BatchQueue::Post(std::unique_ptr<BatchJob> job) {
  MutexLock lock(mu_);
  if (closed_) return Unavailable("the model takes no new requests");
  jobs_.push_back(std::move(job));
  changed_.NotifyOne();
  return OkStatus();
}

void BatchQueue::Close() {
  MutexLock lock(mu_);
  closed_ = true;
  changed_.NotifyOne();
}

BatchQueue::Batch BatchQueue::Take() {
  Batch batch;
  MutexLock lock(mu_);
  running_ = 0;
  while (jobs_.empty() && !closed_) changed_.Wait(mu_);
  batch.last = closed_;
  const Clock::Time now = clock_->Now();
  std::deque<std::unique_ptr<BatchJob>> kept;
  for (std::unique_ptr<BatchJob>& job : jobs_) {
    const bool unwanted =
        closed_ || job->task.stop.stop_requested() || now >= job->task.deadline;
    (unwanted ? batch.dropped.emplace_back() : kept.emplace_back()) =
        std::move(job);
  }
  jobs_ = std::move(kept);
  if (!jobs_.empty()) {
    batch.jobs.push_back(std::move(jobs_.front()));
    jobs_.pop_front();
  }
  running_ = static_cast<int32_t>(batch.jobs.size());
  return batch;
}

int32_t BatchQueue::waiting() const {
  MutexLock lock(mu_);
  return static_cast<int32_t>(jobs_.size());
}

int32_t BatchQueue::running() const {
  MutexLock lock(mu_);
  return running_;
}

}  // namespace millrace::scheduler
