// Lengths of simulated prompts and completions: a normal distribution, rounded
// and cut at 1, the same on every machine (Box and Muller 1958).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>

#include "loadtest/options.h"

namespace millrace::loadtest {

class Lengths {
 public:
  // `random` outlives it. A mean of 0 stands for 1.
  Lengths(TokenCount count, std::mt19937_64* random)
      : count_(count), random_(*random) {}

  int32_t Next() {
    double value = count_.mean;
    if (count_.stddev > 0) {
      const double radius = std::sqrt(-2 * std::log1p(-Uniform()));
      value += count_.stddev * radius * std::cos(2 * M_PI * Uniform());
    }
    return static_cast<int32_t>(std::clamp(std::round(value), 1.0, 1e8));
  }

 private:
  double Uniform() { return static_cast<double>(random_() >> 11) * 0x1.0p-53; }

  TokenCount count_;
  std::mt19937_64& random_;
};

}  // namespace millrace::loadtest
