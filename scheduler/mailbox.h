// How other threads speak to the engine thread: new jobs, and two words, close
// and quit. Bounded: every job holds a place of admission, and no more jobs
// than places are taken.
//
//   closed  no new jobs; what is here is ended at the next step edge
//   quit    closed, and the thread goes home
//
// A stop request of a client sends nothing: the engine parks only when it holds
// no job at all, so a step edge that looks at it is always coming.
//
// Post, Close, Quit, AwaitEnded, size: any thread. Take, Ended: engine thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "config/base/mutex.h"
#include "config/base/status.h"
#include "scheduler/job.h"

namespace millrace::scheduler {

class Mailbox {
 public:
  explicit Mailbox(int32_t capacity) : capacity_(capacity) {}

  // UNAVAILABLE once closed, RESOURCE_EXHAUSTED when full.
  Status Post(std::unique_ptr<Job> job);
  void Close();
  void Quit();
  // Returns once the mailbox is closed and the engine has ended every job.
  void AwaitEnded();
  int32_t size() const;

  struct Mail {
    std::vector<std::unique_ptr<Job>> jobs;  // in order of arrival
    bool closed = false;
    bool quit = false;
  };
  // With `park`, sleeps until there is something new.
  Mail Take(bool park);
  // The engine has taken all mail after the closing and holds no job.
  void Ended();

 private:
  const int32_t capacity_;

  mutable Mutex mu_;
  CondVar changed_;
  CondVar ended_changed_;
  Mail mail_ GUARDED_BY(mu_);
  bool news_ GUARDED_BY(mu_) = false;
  bool ended_ GUARDED_BY(mu_) = false;
};

}  // namespace millrace::scheduler
