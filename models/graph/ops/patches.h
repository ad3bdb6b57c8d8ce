// Patches of images as columns of a matrix, without ever making the whole of
// it (im2col, Chellapilla et al. 2006), and the way back.
//
// Row (c * num_kernel + position) and column o hold the element of channel c
// that kernel position touches in window o; 0 in the padding.
#pragma once

#include <algorithm>
#include <cstdint>

#include "models/graph/ops/window.h"

namespace millrace::models::graph {

struct KernelPosition {
  std::array<int64_t, kSpatial> at;
};

inline KernelPosition PositionOf(const Window& window, int64_t index) {
  const auto& axes = window.axes;
  return {{index / (axes[1].kernel * axes[2].kernel),
           index / axes[2].kernel % axes[1].kernel, index % axes[2].kernel}};
}

// Consecutive windows of one row of outputs: where kernel position `at` meets
// the input, and the windows [low, high) of [first, first + count) for which
// that is not padding.
struct PatchRun {
  bool inside = false;  // of the outer axes
  int64_t element = 0;  // of window `low`, within the channel
  int64_t low = 0;
  int64_t high = 0;
};

inline PatchRun RunOf(const Window& window, const KernelPosition& kernel,
                      int64_t row, int64_t first, int64_t count) {
  const auto& [depth, height, width] = window.axes;
  const int64_t z =
      depth.Begin(row / height.out) + kernel.at[0] * depth.dilation;
  const int64_t y =
      height.Begin(row % height.out) + kernel.at[1] * height.dilation;
  if (z < 0 || z >= depth.in || y < 0 || y >= height.in) return {};
  // Window o touches column o * stride + shift.
  const int64_t shift = kernel.at[2] * width.dilation - width.pad_begin;
  const int64_t stride = width.stride;
  const int64_t low = shift >= 0 ? 0 : (-shift + stride - 1) / stride;
  const int64_t high =
      shift >= width.in ? 0 : (width.in - 1 - shift) / stride + 1;
  PatchRun run{.inside = true};
  run.low = std::clamp(low, first, first + count);
  run.high = std::clamp(high, run.low, first + count);
  run.element = (z * height.in + y) * width.in + run.low * stride + shift;
  return run;
}

// Writes rows [k0, k0 + kc) of columns [n0, n0 + width) as a panel of `cols`
// columns, zeros behind `width`: see Gemm. load(i) is element i of the image,
// counted from its first channel.
template <typename M, typename Load>
void PackPatches(const Window& window, const Load& load, int64_t k0, int64_t kc,
                 int64_t n0, int64_t width, int64_t cols, M* panel) {
  const int64_t per_row = window.axes[2].out;
  const int64_t stride = window.axes[2].stride;
  for (int64_t p = 0; p < kc; ++p) {
    const int64_t channel = (k0 + p) / window.num_kernel();
    const KernelPosition kernel =
        PositionOf(window, (k0 + p) % window.num_kernel());
    M* to = panel + p * cols;
    std::fill_n(to, cols, M(0));
    for (int64_t j = 0; j < width;) {
      const int64_t row = (n0 + j) / per_row;
      const int64_t first = (n0 + j) % per_row;
      const int64_t count = std::min(per_row - first, width - j);
      const PatchRun run = RunOf(window, kernel, row, first, count);
      if (run.inside) {
        const int64_t base = channel * window.num_in() + run.element;
        M* out = to + j + run.low - first;
        for (int64_t i = 0; i < run.high - run.low; ++i) {
          out[i] = load(base + i * stride);
        }
      }
      j += count;
    }
  }
}

// The way back for one channel: adds columns [num_kernel, num_out] to the
// elements that they were taken from.
template <typename M>
void AddPatches(const Window& window, const M* columns, M* image) {
  const int64_t per_row = window.axes[2].out;
  const int64_t rows = window.num_out() / std::max<int64_t>(per_row, 1);
  const int64_t stride = window.axes[2].stride;
  for (int64_t k = 0; k < window.num_kernel(); ++k) {
    const KernelPosition kernel = PositionOf(window, k);
    for (int64_t row = 0; row < rows; ++row) {
      const PatchRun run = RunOf(window, kernel, row, 0, per_row);
      const M* from = columns + (k * rows + row) * per_row + run.low;
      for (int64_t i = 0; i < run.high - run.low; ++i) {
        image[run.element + i * stride] += from[i];
      }
    }
  }
}

}  // namespace millrace::models::graph
