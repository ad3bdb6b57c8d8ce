// Operations that take long, one at a time on a thread of their own, in the
// order they came: loads and unloads of models. Thread-safe.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <thread>

#include "config/base/mutex.h"
#include "config/base/status.h"

namespace millrace::server {

class OperationQueue {
 public:
  using Work = std::function<Status()>;
  using Done = std::function<void(Status)>;
  struct Options {
    // Runs after each operation, when its `done` was called. True: it has more
    // to do and runs again in `after_interval`, or after the next operation.
    std::function<bool()> after;
    std::chrono::milliseconds after_interval{100};
    // Runs when nothing else did for that long; zero: never.
    std::function<void()> idle;
    std::chrono::milliseconds idle_interval{0};
  };

  // A thread without operations may be left out: then all are refused.
  OperationQueue(Options options, bool start);
  ~OperationQueue();  // stops, joins

  // Runs it and returns its result.
  Status Wait(Work work);
  // Runs it later. `done` is called once: from the thread, or before this
  // returns with RESOURCE_EXHAUSTED when 64 operations wait already.
  void Post(Work work, Done done);

  // What waits ends with UNAVAILABLE; what runs is not interrupted.
  void Stop();
  bool stopping() const;

 private:
  struct Operation {
    Work work;
    Done done;
  };
  void Run();

  const Options options_;
  mutable Mutex mu_;
  CondVar changed_;
  std::deque<Operation> operations_ GUARDED_BY(mu_);
  bool stopping_ GUARDED_BY(mu_) = false;
  std::thread thread_;  // last: uses all of the above
};

}  // namespace millrace::server
