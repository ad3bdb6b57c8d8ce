// How often something happened, and how long all of it took.
#pragma once

#include <cstdint>

#include "config/base/clock.h"

namespace millrace::scheduler {

struct CountedTime {
  int64_t count = 0;
  Clock::Duration total{0};

  void Add(Clock::Duration time) {
    ++count;
    total += time;
  }
};

}  // namespace millrace::scheduler
