// The queue of new requests from other threads to the engine thread, and the
// orders to close and to quit. Bounded: every job holds a place of admission,
// and the queue takes no more jobs than there are places.
//
//   closed  no new jobs; running and queued ones end at the next step edge
//   quit    closed, and the engine thread ends
//
// A client's stop request is not sent through the queue: the engine sleeps only
// when it holds no job, so the next step edge sees the request.
//
// Post, Wake, Close, Quit, AwaitEnded, size: any thread. Take, Ended: engine
// thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "config/base/mutex.h"
#include "config/base/status.h"
#include "scheduler/job.h"

namespace millrace::scheduler {

class RequestQueue {
 public:
  explicit RequestQueue(int32_t capacity) : capacity_(capacity) {}

  // UNAVAILABLE once closed, RESOURCE_EXHAUSTED when full.
  Status Post(std::unique_ptr<Job> job);
  // Ends a Take that is parked, or the next one.
  void Wake();
  void Close();
  void Quit();
  // Returns once the queue is closed and the engine has ended every job.
  void AwaitEnded();
  int32_t size() const;

  struct Taken {
    std::vector<std::unique_ptr<Job>> jobs;  // in order of arrival
    bool closed = false;
    bool quit = false;
  };
  // With `park`, sleeps until a job, Wake, Close or Quit comes in.
  Taken Take(bool park);
  // The engine has taken all jobs of the closed queue and has ended them.
  void Ended();

 private:
  const int32_t capacity_;

  mutable Mutex mu_;
  CondVar changed_;
  CondVar ended_changed_;
  Taken pending_ GUARDED_BY(mu_);
  bool news_ GUARDED_BY(mu_) = false;
  bool ended_ GUARDED_BY(mu_) = false;
};

}  // namespace millrace::scheduler
