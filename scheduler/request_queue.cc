// One lock, held to swap a vector. It orders Close and Post: a job is either
// refused, or taken by the step edge that ends all jobs.
#include "scheduler/request_queue.h"

#include <string>
#include <utility>

namespace millrace::scheduler {

Status RequestQueue::Post(std::unique_ptr<Job> job) {
  MutexLock lock(mu_);
  if (pending_.closed) return Unavailable("the model takes no new requests");
  if (static_cast<int32_t>(pending_.jobs.size()) >= capacity_) {
    return ResourceExhausted("the engine's request queue is full (" +
                             std::to_string(capacity_) + " requests)");
  }
  pending_.jobs.push_back(std::move(job));
  news_ = true;
  changed_.NotifyOne();
  return OkStatus();
}

void RequestQueue::Wake() {
  MutexLock lock(mu_);
  news_ = true;
  changed_.NotifyOne();
}

void RequestQueue::Close() {
  MutexLock lock(mu_);
  pending_.closed = true;
  news_ = true;
  changed_.NotifyOne();
}

void RequestQueue::Quit() {
  MutexLock lock(mu_);
  pending_.closed = true;
  pending_.quit = true;
  news_ = true;
  changed_.NotifyOne();
}

void RequestQueue::AwaitEnded() {
  MutexLock lock(mu_);
  while (!ended_) ended_changed_.Wait(mu_);
}

int32_t RequestQueue::size() const {
  MutexLock lock(mu_);
  return static_cast<int32_t>(pending_.jobs.size());
}

RequestQueue::Taken RequestQueue::Take(bool park) {
  MutexLock lock(mu_);
  while (park && !news_) changed_.Wait(mu_);
  news_ = false;
  Taken taken;
  taken.jobs.swap(pending_.jobs);
  taken.closed = pending_.closed;
  taken.quit = pending_.quit;
  return taken;
}

void RequestQueue::Ended() {
  MutexLock lock(mu_);
  ended_ = true;
  ended_changed_.NotifyAll();
}

}  // namespace millrace::scheduler
