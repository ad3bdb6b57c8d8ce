// Stage stamps that travel with a request. Metrics, the access log and spans
// all read the same stamps, so that they never disagree.
//
// A stamp is written once by the thread that owns the stage and read after the
// request ended; each is an atomic so that an early reader sees "not yet".
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

#include "config/base/clock.h"
#include "config/base/trace_context.h"

namespace millrace {

enum class Stage {
  kAccepted,    // first byte of the request was read
  kParsed,      // the codec made a request of it
  kReserved,    // admission gave it a place
  kSubmitted,   // tokens are with the engine
  kScheduled,   // first step that ran any of its tokens began
  kFirstToken,  // the first sampled token is known
  kFirstByte,   // first byte of the answer was written
  kEnded,       // the last one was
  kCount,
};

struct Trace {
  std::string request_id;
  TraceContext context;  // set before the request reaches a route
  std::array<std::atomic<int64_t>, static_cast<size_t>(Stage::kCount)>
      stamps{};  // nanoseconds of Clock, 0 = not yet

  // The first stamp of a stage stays.
  void Stamp(Stage stage, Clock::Time now) {
    int64_t unset = 0;
    stamps[static_cast<size_t>(stage)].compare_exchange_strong(
        unset, now.time_since_epoch().count(), std::memory_order_relaxed);
  }
  // Seconds from one stage to a later one, or -1 when either is not stamped.
  double Seconds(Stage from, Stage to) const {
    const int64_t a =
        stamps[static_cast<size_t>(from)].load(std::memory_order_relaxed);
    const int64_t b =
        stamps[static_cast<size_t>(to)].load(std::memory_order_relaxed);
    return a == 0 || b == 0 ? -1.0 : static_cast<double>(b - a) * 1e-9;
  }
};

}  // namespace millrace
