// When a request must end that has a deadline, a timeout, or both.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

#include "config/base/clock.h"

namespace millrace {

// A timeout of so long is none: what it is added to must not overflow.
inline constexpr auto kEndlessTimeout = std::chrono::hours(24 * 365);

// The earlier of the deadline and of the timeout's end, counted from now.
inline Clock::Time EarlierDeadline(
    Clock::Time deadline, std::optional<std::chrono::microseconds> timeout,
    const Clock& clock) {
  if (!timeout || *timeout >= kEndlessTimeout) return deadline;
  return std::min(deadline, clock.Now() + Clock::Duration(*timeout));
}

}  // namespace millrace
