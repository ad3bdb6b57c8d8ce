#include <algorithm>
#include <utility>

#include "handlers/external/instance.h"

namespace millrace::handlers {

Status ExternalQueue::Check() const {
  MutexLock lock(mu_);
  return CheckLocked();
}

Status ExternalQueue::Takes() const {
  MutexLock lock(mu_);
  return TakesLocked();
}

Status ExternalQueue::TakesLocked() const {
  if (closed_) {
    return Unavailable("the handler is leaving and takes no new requests")
        .Because("draining")
        .RetryAfterMs(1000);
  }
  return serving_.empty() ? why_none_ : OkStatus();
}

Status ExternalQueue::CheckLocked() const {
  RETURN_IF_ERROR(TakesLocked());
  if (static_cast<int64_t>(jobs_.size()) < max_waiting_) return OkStatus();
  return ResourceExhausted(
             "the handler's queue is full: " + std::to_string(jobs_.size()) +
             " requests wait, as many as max_queue_size allows; "
             "try again later")
      .Because("queue_full")
      .RetryAfterMs(1000);
}

Status ExternalQueue::Push(ExternalJob job) {
  {
    MutexLock lock(mu_);
    RETURN_IF_ERROR(CheckLocked());
    jobs_.push_back(std::move(job));
  }
  changed_.NotifyOne();
  return OkStatus();
}

bool ExternalQueue::Pop(Clock::Time until, ExternalJob* job) {
  MutexLock lock(mu_);
  while (jobs_.empty()) {
    if (!changed_.WaitUntil(mu_, until)) break;
  }
  if (jobs_.empty()) return false;
  *job = std::move(jobs_.front());
  jobs_.pop_front();
  return true;
}

void ExternalQueue::Join(int64_t instance) {
  MutexLock lock(mu_);
  serving_.insert(instance);
}

void ExternalQueue::Leave(int64_t instance, const Status& why) {
  std::deque<ExternalJob> left;
  {
    MutexLock lock(mu_);
    serving_.erase(instance);
    why_none_ = why;
    if (serving_.empty()) left.swap(jobs_);
  }
  for (ExternalJob& job : left) job.done(why);
}

void ExternalQueue::Close(const Status& status) {
  std::deque<ExternalJob> left;
  {
    MutexLock lock(mu_);
    closed_ = true;
    left.swap(jobs_);
  }
  changed_.NotifyAll();
  for (ExternalJob& job : left) job.done(status);
}

void ExternalQueue::EndStale(Clock::Time now) {
  std::vector<ExternalJob> stale;
  {
    MutexLock lock(mu_);
    for (auto at = jobs_.begin(); at != jobs_.end();) {
      if (at->deadline <= now || at->stop.stop_requested()) {
        stale.push_back(std::move(*at));
        at = jobs_.erase(at);
      } else {
        ++at;
      }
    }
  }
  for (ExternalJob& job : stale) {
    job.done(job.stop.stop_requested()
                 ? Cancelled("the client is gone")
                 : DeadlineExceeded("the deadline passed before a process of "
                                    "the handler was free"));
  }
}

}  // namespace millrace::handlers
