// What pixels of a convolution see of an image, as rows of a product: the taps
// of each, zero points where they lie outside. S is what
// kernels/dense_int8/gemm.h says. Anonymous namespace.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/cpu/kernels/dense_int8/copy.h"
#include "models/cpu/kernels/dense_int8/epilogue.h"

namespace millrace::models {
namespace {

template <class S>
class Int8Gather {
 public:
  // Whether a pixel of the image is a row as it lies.
  static bool PixelsAreRows(const Int8ConvArgs& a) {
    const Window& w = a.window;
    return w.kernel_h == 1 && w.kernel_w == 1 && w.stride_h == 1 &&
           w.stride_w == 1 && w.pad_top == 0 && w.pad_left == 0 &&
           a.out_width == a.x.width && a.x.ld_row == a.x.width * a.x.ld_pixel;
  }

  // Writes what each pixel sees into rows of the scratch; pixels of one output
  // row go together, and for each row of the kernel. What is written behind a
  // run is written again, since the rows of the kernel come in turn.
  template <class Row>
  static void Gather(const Int8ConvArgs& a, int64_t pixel, int64_t pixels,
                     const Row& row_at) {
    const Window& w = a.window;
    const int64_t run = w.kernel_w * a.x.channels;
    // Neighbouring taps see neighbouring bytes: a run lies in one piece.
    const bool joined = w.dilation_w == 1 && a.x.ld_pixel == a.x.channels;
    for (int64_t done = 0; done < pixels;) {
      const int64_t out_row = pixel / a.out_width;
      const int64_t column = pixel - out_row * a.out_width;
      const int64_t count = SmallerOf(pixels - done, a.out_width - column);
      for (int64_t i = 0; i < w.kernel_h; ++i) {
        const int64_t row = out_row * w.stride_h - w.pad_top + i * w.dilation_h;
        const bool in_image = row >= 0 && row < a.x.height;
        const bool is_short = joined && in_image && run <= kShort;
        for (int64_t p = 0; p < count; ++p) {
          auto* const to = row_at(done + p) + i * run;
          const int64_t left = (column + p) * w.stride_w - w.pad_left;
          if (is_short && IsInside(a.x, row, left, w.kernel_w)) {
            CopyShort(a.x.data + row * a.x.ld_row + left * a.x.channels, to);
          } else if (!in_image) {
            FillBytes(a.x.zero, run, to);
          } else if (joined) {
            CopyRun(a.x, row, left, run, to);
          } else {
            Taps(a, row, left, to);
          }
        }
      }
      done += count;
      pixel += count;
    }
  }

 private:
  static constexpr int64_t kShort = 4 * S::V::kLanes;  // bytes of Taps

  static void CopyShort(const uint8_t* from, uint8_t* to) {
    S::StoreTaps(to, kShort, S::LoadTaps(from));
  }
  static void CopyShort(const uint8_t* from, uint16_t* to) {
    CopyBytes<S>(from, kShort, to);
  }

  // Whether columns from `left` on are, and a short run can be read there.
  static bool IsInside(const ByteImage& x, int64_t row, int64_t left,
                       int64_t columns) {
    const int64_t rest = (x.width - left) * x.channels;
    return left >= 0 && left + columns <= x.width &&
           (x.height - 1 - row) * x.ld_row + rest >= kShort;
  }

  template <typename T>
  static void CopyRun(const ByteImage& x, int64_t row, int64_t left,
                      int64_t run, T* to) {
    const int64_t begin = Between(-left * x.channels, 0, run);
    const int64_t end = Between((x.width - left) * x.channels, begin, run);
    if (begin > 0) FillBytes(x.zero, begin, to);
    if (end > begin) {
      const int64_t from = row * x.ld_row + left * x.channels + begin;
      CopyBytes<S>(x.data + from, end - begin, to + begin);
    }
    if (end < run) FillBytes(x.zero, run - end, to + end);
  }

  template <typename T>
  static void Taps(const Int8ConvArgs& a, int64_t row, int64_t left, T* to) {
    const ByteImage& x = a.x;
    for (int64_t j = 0; j < a.window.kernel_w; ++j, to += x.channels) {
      const int64_t column = left + j * a.window.dilation_w;
      if (column < 0 || column >= x.width) {
        FillBytes(x.zero, x.channels, to);
      } else {
        CopyBytes<S>(x.data + row * x.ld_row + column * x.ld_pixel, x.channels,
                     to);
      }
    }
  }
};

}  // namespace
}  // namespace millrace::models
