// Time that tests can fake. Durations inside are std::chrono; only the config
// and metrics edges speak of milliseconds and seconds.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <chrono>

namespace millrace {

class Clock {
 public:
  using Duration = std::chrono::nanoseconds;
  using Time = std::chrono::time_point<std::chrono::steady_clock, Duration>;
  virtual ~Clock() = default;
  virtual Time Now() const = 0;  // monotonic

  static const Clock& Real();  // steady_clock, lives for the process
};

// Far enough never to come: "no deadline".
inline constexpr Clock::Time kNever = Clock::Time::max();

class FakeClock final : public Clock {
 public:
  Time Now() const override {
    return Time(Duration(now_ns_.load(std::memory_order_relaxed)));
  }
  void Advance(Duration by) {
    now_ns_.fetch_add(by.count(), std::memory_order_relaxed);
  }

 private:
  // Relaxed: a clock orders nothing but itself.
  std::atomic<int64_t> now_ns_{1'000'000'000};
};

}  // namespace millrace
