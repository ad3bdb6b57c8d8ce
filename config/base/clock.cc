// The process's own clock. steady_clock counts nanoseconds on Linux, so the
// conversion below is free.
#include "config/base/clock.h"

namespace millrace {
namespace {

class RealClock final : public Clock {
 public:
  Time Now() const override { return std::chrono::steady_clock::now(); }
};

}  // namespace

const Clock& Clock::Real() {
  static const RealClock clock;
  return clock;
}

}  // namespace millrace
