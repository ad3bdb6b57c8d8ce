// A transposed convolution as ordinary ones. Results that are `stride` apart
// see the same taps, so those of one phase are a convolution by a part of the
// kernel, turned around; here for one axis:
//
//   y[o] = Σ x[i] w[k],   i * stride + k = o + pad
//   phase r = (o + pad) mod stride:   k = r + stride * t,   i = q - t
//   q = (o + pad - r) / stride
#pragma once

#include <cstdint>
#include <vector>

namespace millrace::models::graph {

// One phase on one axis.
struct AxisPhase {
  int64_t first = 0;  // the least o
  int64_t count = 0;
  int64_t remainder = 0;  // r
  int64_t taps = 0;       // t of them
  int64_t pad = 0;        // of the ordinary convolution
};

inline std::vector<AxisPhase> PhasesOf(int64_t kernel, int64_t stride,
                                       int64_t pad, int64_t out) {
  std::vector<AxisPhase> phases;
  for (int64_t o = 0; o < stride; ++o) {
    const int64_t r = (o + pad) % stride;
    const int64_t taps = (kernel - r + stride - 1) / stride;
    phases.push_back({.first = o,
                      .count = (out - o + stride - 1) / stride,
                      .remainder = r,
                      .taps = taps,
                      .pad = taps - 1 - (o + pad - r) / stride});
  }
  return phases;
}

}  // namespace millrace::models::graph
