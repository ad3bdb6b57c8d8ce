#include "server/lifecycle/operation_queue.h"

#include <algorithm>
#include <exception>
#include <future>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "config/base/log.h"
#include "config/topology.h"

namespace millrace::server {
namespace {

// What throws (out of memory, most likely) fails alone; the thread goes on.
template <typename Work>
Status Guarded(const Work& work) {
  try {
    if constexpr (std::is_void_v<std::invoke_result_t<Work>>) {
      work();
      return OkStatus();
    } else {
      return work();
    }
  } catch (const std::exception& error) {
    LogError("an operation on models failed", {{"error", error.what()}});
    return Internal(std::string("the operation failed: ") + error.what());
  }
}

constexpr size_t kMaxOperations = 64;
constexpr auto kNotPlanned = std::chrono::steady_clock::time_point::max();

Status Stopped() {
  return Unavailable("the server is shutting down; use another instance")
      .Because("draining")
      .RetryAfterMs(1000);
}

}  // namespace

OperationQueue::OperationQueue(Options options, bool start)
    : options_(std::move(options)), stopping_(!start) {
  if (start) thread_ = std::thread([this] { Run(); });
}

OperationQueue::~OperationQueue() {
  Stop();
  if (thread_.joinable()) thread_.join();
}

Status OperationQueue::Wait(Work work) {
  auto ended = std::make_shared<std::promise<Status>>();
  std::future<Status> result = ended->get_future();
  Post(std::move(work),
       [ended](Status status) { ended->set_value(std::move(status)); });
  return result.get();
}

void OperationQueue::Post(Work work, Done done) {
  Status refused;
  {
    MutexLock lock(mu_);
    if (stopping_) {
      refused = Stopped();
    } else if (operations_.size() >= kMaxOperations) {
      refused = ResourceExhausted(std::to_string(kMaxOperations) +
                                  " loads and unloads wait already; try again "
                                  "later")
                    .Because("queue_full")
                    .RetryAfterMs(1000);
    } else {
      operations_.push_back({std::move(work), std::move(done)});
      changed_.NotifyAll();
      return;
    }
  }
  done(std::move(refused));
}

void OperationQueue::Stop() {
  MutexLock lock(mu_);
  stopping_ = true;
  changed_.NotifyAll();
}

bool OperationQueue::stopping() const {
  MutexLock lock(mu_);
  return stopping_;
}

void OperationQueue::Run() {
  using Clock = std::chrono::steady_clock;
  // Only a name for top -H: naming a thread cannot fail.
  static_cast<void>(config::PinThisThread({}, "repository"));
  const auto next_idle = [this] {
    return options_.idle_interval.count() > 0
               ? Clock::now() + options_.idle_interval
               : kNotPlanned;
  };
  auto idle_at = next_idle();
  auto after_at = kNotPlanned;
  while (true) {
    Operation next;
    {
      MutexLock lock(mu_);
      const auto until = std::min(idle_at, after_at);
      while (operations_.empty() && !stopping_) {
        if (until == kNotPlanned) {
          changed_.Wait(mu_);
        } else if (!changed_.WaitUntil(mu_, until)) {
          break;
        }
      }
      if (stopping_) break;
      if (!operations_.empty()) {
        next = std::move(operations_.front());
        operations_.pop_front();
      }
    }
    if (next.work) {
      next.done(Guarded(next.work));
      idle_at = next_idle();
    } else if (Clock::now() >= idle_at) {
      static_cast<void>(Guarded([this] { options_.idle(); }));
      idle_at = next_idle();
    }
    bool again = false;
    if (options_.after) {
      static_cast<void>(Guarded([&] { again = options_.after(); }));
    }
    after_at = again ? Clock::now() + options_.after_interval : kNotPlanned;
  }
  std::deque<Operation> left;
  {
    MutexLock lock(mu_);
    left.swap(operations_);
  }
  for (Operation& each : left) each.done(Stopped());
}

}  // namespace millrace::server
