// Captures on demand: switches the timeline on, waits on a thread of its own,
// and hands out what was gathered. One at a time.
//
// Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <stop_token>
#include <thread>

#include "config/base/clock.h"
#include "config/base/mutex.h"
#include "config/base/status.h"
#include "config/base/timeline.h"

namespace millrace::server {

// Of a capture, for the route and for `millrace trace`. How much is kept of it:
// kMaxSlices in config/base/timeline.h.
inline constexpr int64_t kDefaultCaptureSeconds = 5;
inline constexpr int64_t kMostCaptureSeconds = 60;

class Capturer {
 public:
  // Both outlive it.
  Capturer(Timeline* timeline, const Clock* clock);
  ~Capturer() { Stop(); }

  // A capture under way ends early and is handed out; none begins any more.
  void Stop();

  // What hands out the answer, short; may be null.
  using Send = std::function<void()>;
  // `done` is called once, on the capture's thread, after `length` or as soon
  // as `stop` is requested, and makes the answer; what it returns is called
  // when the next capture may begin. ALREADY_EXISTS while another runs.
  Status Start(std::chrono::milliseconds length, std::stop_token stop,
               std::function<Send(TimelineCapture)> done);

 private:
  Timeline* const timeline_;
  const Clock* const clock_;
  Mutex mu_;
  CondVar changed_;
  bool running_ GUARDED_BY(mu_) = false;
  bool stopping_ GUARDED_BY(mu_) = false;
  std::thread thread_ GUARDED_BY(mu_);  // of the last capture
};

}  // namespace millrace::server
