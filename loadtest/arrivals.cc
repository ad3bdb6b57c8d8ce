// Constant times are computed from the index, so that rounding does not add up
// over a long run. The exponential distribution is computed here because that
// of the standard library differs between implementations.
#include "loadtest/arrivals.h"

#include <cmath>
#include <utility>

namespace millrace::loadtest {
namespace {

std::chrono::nanoseconds FromSeconds(double seconds) {
  return std::chrono::nanoseconds(std::llround(seconds * 1e9));
}

}  // namespace

Arrivals::Arrivals(ArrivalSpec spec)
    : spec_(std::move(spec)), random_(spec_.seed) {}

std::optional<std::chrono::nanoseconds> Arrivals::Next() {
  const int64_t index = index_++;
  switch (spec_.kind) {
    case ArrivalKind::kConstant:
      return FromSeconds(static_cast<double>(index) / spec_.rate);
    case ArrivalKind::kBurst: {
      const int64_t first = index / spec_.burst_size * spec_.burst_size;
      return FromSeconds(static_cast<double>(first) / spec_.rate);
    }
    case ArrivalKind::kPoisson: {
      // Uniform in [0, 1) with 53 bits.
      const double uniform = static_cast<double>(random_() >> 11) * 0x1.0p-53;
      offset_s_ += -std::log1p(-uniform) / spec_.rate;
      return FromSeconds(offset_s_);
    }
    case ArrivalKind::kTrace:
      if (index >= static_cast<int64_t>(spec_.trace.size())) {
        return std::nullopt;
      }
      return spec_.trace[index];
  }
  return std::nullopt;
}

}  // namespace millrace::loadtest
