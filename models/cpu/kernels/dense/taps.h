// Which taps of a window meet the image. Anonymous namespace.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/cpu/graph_kernels.h"

namespace millrace::models {
namespace {

// Taps [begin, end) of a kernel that lie in the image, and the place of tap 0.
struct Taps {
  int64_t start;
  int64_t begin;
  int64_t end;
};

inline Taps TapsOf(int64_t out, int64_t stride, int64_t pad, int64_t dilation,
                   int64_t kernel, int64_t size) {
  Taps t{out * stride - pad, 0, kernel};
  if (t.start < 0) t.begin = (-t.start + dilation - 1) / dilation;
  if (t.start + (kernel - 1) * dilation >= size) {
    const int64_t room = size - t.start;
    t.end = room > 0 ? (room + dilation - 1) / dilation : 0;
  }
  if (t.begin > t.end) t.begin = t.end;
  return t;
}
inline Taps RowTaps(const Image& x, const Window& w, int64_t out_row) {
  return TapsOf(out_row, w.stride_h, w.pad_top, w.dilation_h, w.kernel_h,
                x.height);
}
inline Taps ColumnTaps(const Image& x, const Window& w, int64_t out_column) {
  return TapsOf(out_column, w.stride_w, w.pad_left, w.dilation_w, w.kernel_w,
                x.width);
}

}  // namespace
}  // namespace millrace::models
