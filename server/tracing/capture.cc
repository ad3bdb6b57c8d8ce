#include "server/tracing/capture.h"

#include <algorithm>
#include <string>
#include <system_error>
#include <utility>

#include "config/topology.h"

namespace millrace::server {
namespace {

// How soon a client that left is noticed.
constexpr std::chrono::milliseconds kLook{100};

}  // namespace

Capturer::Capturer(Timeline* timeline, const Clock* clock)
    : timeline_(timeline), clock_(clock) {}

void Capturer::Stop() {
  std::thread last;
  {
    MutexLock lock(mu_);
    stopping_ = true;
    last = std::move(thread_);
  }
  changed_.NotifyAll();
  if (last.joinable()) last.join();
}

Status Capturer::Start(std::chrono::milliseconds length, std::stop_token stop,
                       std::function<Send(TimelineCapture)> done) {
  MutexLock lock(mu_);
  if (running_ || stopping_ || !timeline_->Start(clock_->Now())) {
    return AlreadyExists("another capture runs; try again once it has ended")
        .Because("capture_running");
  }
  // It has ended: its thread only has to hand it over.
  if (thread_.joinable()) thread_.join();
  try {
    thread_ = std::thread(
        [this, length, stop = std::move(stop), done = std::move(done)] {
          // Only a name for top -H: naming a thread cannot fail.
          static_cast<void>(config::PinThisThread({}, "capture"));
          const auto until = std::chrono::steady_clock::now() + length;
          {
            MutexLock waiting(mu_);
            while (!stopping_ && !stop.stop_requested()) {
              const auto now = std::chrono::steady_clock::now();
              if (now >= until) break;
              changed_.WaitUntil(mu_, std::min(until, now + kLook));
            }
          }
          const Send send = done(timeline_->Stop(clock_->Now()));
          {
            MutexLock ended(mu_);
            running_ = false;
          }
          // Last: a client that asks again on its answer is not refused.
          if (send) send();
        });
  } catch (const std::system_error& error) {
    timeline_->Stop(clock_->Now());
    return ResourceExhausted(
        std::string("no thread can be started for the capture (") +
        error.what() + "); try again later");
  }
  running_ = true;  // its thread waits for the lock before it ends
  return OkStatus();
}

}  // namespace millrace::server
