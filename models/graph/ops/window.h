// Windows that slide over up to three spatial dimensions, as convolutions and
// pools move them. Fewer dimensions are preceded by dimensions of size 1, so
// that one loop of three serves all.
//
//   out = (in + pad_begin + pad_end - reach) / stride + 1,
//   reach = (kernel - 1) * dilation + 1
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "config/base/status.h"
#include "models/graph/attrs.h"
#include "models/tensor/shape.h"

namespace millrace::models::graph {

inline constexpr int kSpatial = 3;

struct WindowAxis {
  int64_t in = 1;
  int64_t out = 1;
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t dilation = 1;
  int64_t pad_begin = 0;
  int64_t pad_end = 0;

  int64_t reach() const { return (kernel - 1) * dilation + 1; }
  // Where the window of output o begins, which may be in the padding.
  int64_t Begin(int64_t o) const { return o * stride - pad_begin; }
  // The kernel positions [first, last) that lie inside of the input.
  std::pair<int64_t, int64_t> Inside(int64_t o) const;
};

struct Window {
  int rank = 0;
  std::array<WindowAxis, kSpatial> axes;  // outermost first

  int64_t num_in() const { return axes[0].in * axes[1].in * axes[2].in; }
  int64_t num_out() const { return axes[0].out * axes[1].out * axes[2].out; }
  int64_t num_kernel() const {
    return axes[0].kernel * axes[1].kernel * axes[2].kernel;
  }
  // `shape` with the outputs' sizes behind its first two dimensions.
  StatusOr<Shape> OutShape(int64_t batch, int64_t channels) const;
};

// Of attributes strides, dilations, pads, auto_pad and, for pools, ceil_mode,
// as ONNX defines them. INVALID_ARGUMENT names the attribute.
StatusOr<Window> MakeWindow(const Attrs& attrs, std::span<const int64_t> in,
                            std::span<const int64_t> kernel);

// A list of one number for each of `rank` dimensions, 1 where it is left out;
// within 1 and 2^31.
StatusOr<std::array<int64_t, kSpatial>> PerAxis(const Attrs& attrs,
                                                std::string_view name,
                                                int rank);
// Begins, then ends, 0 where left out; within 0 and 2^31.
StatusOr<std::array<int64_t, 2 * kSpatial>> PadsOf(const Attrs& attrs,
                                                   int rank);

}  // namespace millrace::models::graph
