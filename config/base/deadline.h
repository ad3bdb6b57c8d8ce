// When a request must end that has a deadline, a timeout, or both.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

#include "config/base/clock.h"

namespace millrace {

// The earlier of the deadline and of the timeout's end, counted from now. A
// timeout beyond a year is none: the sum must not overflow.
inline Clock::Time EarlierDeadline(
    Clock::Time deadline, std::optional<std::chrono::microseconds> timeout,
    const Clock& clock) {
  constexpr auto kYear = std::chrono::hours(24 * 365);
  if (!timeout || *timeout >= kYear) return deadline;
  return std::min(deadline, clock.Now() + Clock::Duration(*timeout));
}

}  // namespace millrace
