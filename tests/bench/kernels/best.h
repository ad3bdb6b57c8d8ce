// The best time of many short runs.
#pragma once

#include <algorithm>

#include "tests/bench/kernels/roofline.h"

namespace millrace::bench {

// Runs the body in short bursts for at least 80 ms; best seconds of one call.
template <typename Body>
double Best(Body body) {
  double best = 1e9;
  const double until = Now() + 0.08;
  do {
    const double start = Now();
    int calls = 0;
    do {
      body();
      ++calls;
    } while (Now() - start < 2e-4);
    best = std::min(best, (Now() - start) / calls);
  } while (Now() < until);
  return best;
}

}  // namespace millrace::bench
