// A few rows of an image with their padding, kept while a convolution goes down
// the image: each row is copied once and read by every row of the kernel. S
// gives the values of a row and how an image's, of type From, become them, as
// in kernels/dense/gemm.h. Anonymous namespace.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/cpu/graph_kernels.h"

namespace millrace::models {
namespace {

template <class S, class From>
class PaddedRows {
 public:
  static constexpr int64_t kMostRows = 16;

  // Rows that a pixel sees, and the one after the other what lies between.
  static int64_t RowsOf(const Window& w) {
    return (w.kernel_h - 1) * w.dilation_h + 1;
  }
  // Words of 32 bits of a row: the columns that an output row sees.
  static int64_t RowWords(const ConvArgs& a) {
    return ((a.out_width - 1) * a.window.stride_w + a.window.kernel_w) *
           a.x.channels / kPerWord;
  }

  PaddedRows(const ConvArgs& a, const From* data)
      : a_(a), data_(data), row_words_(RowWords(a)), rows_(RowsOf(a.window)) {
    for (int64_t& held : held_) held = kNone;
  }

  // Where row `row` of the image, which may lie outside, stands in the scratch.
  int64_t At(int64_t row) {
    // Never negative: padding is less than the kernel's reach.
    const int64_t place = (row + rows_ * kMostRows) % rows_;
    if (held_[place] != row) {
      Fill(row, a_.scratch + place * row_words_);
      held_[place] = row;
    }
    return place * row_words_;
  }

 private:
  using E = typename S::E;
  static constexpr int64_t kPerWord = sizeof(float) / sizeof(E);
  static constexpr int64_t kNone = INT64_MIN;

  void Fill(int64_t row, float* words) const {
    const Image& x = a_.x;
    E* to = reinterpret_cast<E*>(words);
    const int64_t all = row_words_ * kPerWord;
    if (row < 0 || row >= x.height) {
      __builtin_memset(to, 0, sizeof(E) * all);
      return;
    }
    const int64_t left = a_.window.pad_left * x.channels;
    int64_t inside = x.width * x.channels;
    if (inside > all - left) inside = all - left;
    __builtin_memset(to, 0, sizeof(E) * left);
    S::Copy(data_ + row * x.ld_row, inside, to + left);
    __builtin_memset(to + left + inside, 0, sizeof(E) * (all - left - inside));
  }

  const ConvArgs& a_;
  const From* const data_;  // the image
  const int64_t row_words_;
  const int64_t rows_;
  int64_t held_[kMostRows];
};

}  // namespace
}  // namespace millrace::models
