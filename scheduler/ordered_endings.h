// Delivers completed requests in the order in which requests came, whatever the
// order in which several instances reach them.
//
// Thread-safe. An ending runs on the thread that brings it, or on the one that
// brings the ending before it; never two at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>

#include "config/base/mutex.h"

namespace millrace::scheduler {

class OrderedEndings {
 public:
  // `sequence` counts from 0 without gaps; each is given once.
  void End(int64_t sequence, std::function<void()> ending);

 private:
  Mutex mu_;
  std::map<int64_t, std::function<void()>> held_ GUARDED_BY(mu_);
  int64_t next_ GUARDED_BY(mu_) = 0;
  bool running_ GUARDED_BY(mu_) = false;  // a thread is giving endings out
};

}  // namespace millrace::scheduler
