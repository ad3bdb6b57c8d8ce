// Weights of a convolution in the order of im2col rows: taps before channels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace millrace::models::graph {

// [outputs][channels][taps] to [outputs][taps][channels].
template <typename T>
std::vector<T> TapsFirst(const T* w, int64_t outputs, int64_t channels,
                         int64_t taps) {
  std::vector<T> moved(static_cast<size_t>(outputs * channels * taps));
  T* to = moved.data();
  for (int64_t o = 0; o < outputs; ++o) {
    const T* from = w + o * channels * taps;
    for (int64_t t = 0; t < taps; ++t) {
      for (int64_t c = 0; c < channels; ++c) *to++ = from[c * taps + t];
    }
  }
  return moved;
}

}  // namespace millrace::models::graph
