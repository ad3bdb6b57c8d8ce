// How a rank waits for the others: it asks without rest at first, then lets
// others run in between, then sleeps; the last costs a step that comes out of
// idleness so much.
//
//   Wait wait(limit);
//   while (!IsThere()) if (!wait.Pause()) return late;
#pragma once

#include <sched.h>
#include <time.h>

#include <chrono>
#include <optional>

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace millrace::models::mpi {

// One thread, for one thing that is waited for.
class Wait {
 public:
  explicit Wait(std::optional<std::chrono::milliseconds> limit)
      : limit_(limit) {}

  // Between two looks; false once it has waited as long as the limit.
  bool Pause() {
    if (++asked_ < kWithoutRest) {
      Relax();
      return true;
    }
    const Clock::time_point now = Clock::now();
    if (asked_ == kWithoutRest) begun_ = now;
    if (now - begun_ < kYieldFor) {
      sched_yield();
      return true;
    }
    if (limit_ && now - begun_ > *limit_) return false;
    const timespec pause = {.tv_sec = 0, .tv_nsec = kSleepNs};
    nanosleep(&pause, nullptr);
    return true;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int kWithoutRest = 2000;
  static constexpr auto kYieldFor = std::chrono::milliseconds(20);
  static constexpr long kSleepNs = 200'000;

  // The other thread of this core may be who is waited for.
  static void Relax() {
#ifdef __x86_64__
    _mm_pause();
#endif
  }

  const std::optional<std::chrono::milliseconds> limit_;
  int asked_ = 0;
  Clock::time_point begun_;
};

}  // namespace millrace::models::mpi
