// A few rows of an image with their padding, kept while a convolution goes down
// the image: each row is copied once and read by every row of the kernel.
// Anonymous namespace.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/cpu/dense.h"

namespace millrace::models {
namespace {

class PaddedRows {
 public:
  static constexpr int64_t kMostRows = 16;

  // Rows that a pixel sees, and the one after the other what lies between.
  static int64_t RowsOf(const Window& w) {
    return (w.kernel_h - 1) * w.dilation_h + 1;
  }
  // Floats of a row: the columns that an output row sees.
  static int64_t RowFloats(const ConvArgs& a) {
    return ((a.out_width - 1) * a.window.stride_w + a.window.kernel_w) *
           a.x.channels;
  }

  explicit PaddedRows(const ConvArgs& a)
      : a_(a), row_floats_(RowFloats(a)), rows_(RowsOf(a.window)) {
    for (int64_t& held : held_) held = kNone;
  }

  // Where row `row` of the image, which may lie outside, stands in the scratch.
  int64_t At(int64_t row) {
    // Never negative: padding is less than the kernel's reach.
    const int64_t place = (row + rows_ * kMostRows) % rows_;
    if (held_[place] != row) {
      Fill(row, a_.scratch + place * row_floats_);
      held_[place] = row;
    }
    return place * row_floats_;
  }

 private:
  static constexpr int64_t kNone = INT64_MIN;

  void Fill(int64_t row, float* to) const {
    const Image& x = a_.x;
    if (row < 0 || row >= x.height) {
      __builtin_memset(to, 0, sizeof(float) * row_floats_);
      return;
    }
    const int64_t left = a_.window.pad_left * x.channels;
    int64_t inside = x.width * x.channels;
    if (inside > row_floats_ - left) inside = row_floats_ - left;
    __builtin_memset(to, 0, sizeof(float) * left);
    __builtin_memcpy(to + left, x.data + row * x.ld_row,
                     sizeof(float) * inside);
    __builtin_memset(to + left + inside, 0,
                     sizeof(float) * (row_floats_ - left - inside));
  }

  const ConvArgs& a_;
  const int64_t row_floats_;
  const int64_t rows_;
  int64_t held_[kMostRows];
};

}  // namespace
}  // namespace millrace::models
