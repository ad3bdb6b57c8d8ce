// Convolution of bytes whose pixels are read where they lie: rows of the image
// are copied once with their padding, and then what a pixel sees of one is a
// run in it. Neighbours' runs overlap, so a tile is rows of a product, a stride
// apart, whose k is in as many pieces as the kernel has rows:
//
//   pixel p, kernel row i:   row (p / out_width * stride_h + i * dilation_h),
//                            bytes p % out_width * stride_w * channels on
//
// Gathering, as in conv.h, copies each byte for each tap that sees it, which
// only pays where many panels share the rows. S is what
// kernels/dense_int8/gemm.h says. Anonymous namespace.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/cpu/kernels/dense_int8/copy.h"
#include "models/cpu/kernels/dense_int8/gemm.h"

namespace millrace::models {
namespace {

// Whether a layer works on rows, and the order of its weights: the run of each
// row of the kernel is filled up by weights of 0 then.
template <class S>
Int8Order OrderOf(int64_t n, const Window& w, int64_t channels) {
  const int64_t run = w.kernel_w * channels;
  const int64_t unit = S::kPairs ? 8 : 4;
  const int64_t filled = (run + unit - 1) / unit * unit;
  // What AVX2 multiplies in vain must be little.
  const bool fits = !S::kPairs || filled * 4 <= run * 5;
  const bool few = Int8Panels<S>::Panels(n) <= S::kFewPanels;
  if (w.kernel_h * w.kernel_w > 1 && w.dilation_w == 1 && few && fits) {
    return {.by_rows = true, .rows = w.kernel_h, .run = run, .filled = filled};
  }
  const int64_t k = w.kernel_h * run;
  return {.run = k, .filled = k};
}

template <class S>
class Int8RowConv {
 public:
  static int64_t ScratchBytes(const Window& w, int64_t out_width,
                              int64_t channels) {
    // More rows of bytes may fit than of words, and take more.
    const int64_t bytes = RowsBytes(w, out_width, channels);
    const int64_t words = S::kPairs ? RowsBytes(w, out_width, 2 * channels) : 0;
    return (bytes > words ? bytes : words) + 64;
  }

  // T holds a byte of the image.
  template <typename T>
  static void Run(const Int8ConvArgs& a, const Int8Order& order,
                  typename Int8Gemm<S>::Job job) {
    constexpr int64_t kSize = sizeof(T);
    const Window& w = a.window;
    const int64_t ld = LdRow(w, a.out_width, a.x.channels * kSize);
    const int64_t ld_x = w.stride_w * a.x.channels * kSize;
    const int64_t most = Rows(w, ld);
    job.run = order.filled;
    job.skip = w.dilation_h * ld - job.run * kSize;
    const int64_t last = (a.pixel_end - 1) / a.out_width;
    for (int64_t row = a.pixel_begin / a.out_width; row <= last; row += most) {
      const int64_t end = SmallerOf(row + most, last + 1);
      Copy<T>(a, row * w.stride_h - w.pad_top, Reach(w, end - row), ld);
      for (int64_t at = row; at < end; ++at) {
        const int64_t first = at * a.out_width;
        const int64_t begin = a.pixel_begin > first ? a.pixel_begin : first;
        const int64_t stop = SmallerOf(a.pixel_end, first + a.out_width);
        Int8Gemm<S>::Block(
            job,
            a.scratch + (at - row) * w.stride_h * ld + (begin - first) * ld_x,
            ld_x, begin, stop - begin);
      }
    }
  }

 private:
  // Columns that a row of the result sees.
  static int64_t Columns(const Window& w, int64_t out_width) {
    return (out_width - 1) * w.stride_w + w.kernel_w;
  }
  // An odd number of lines, with room for what is filled up.
  static int64_t LdRow(const Window& w, int64_t out_width,
                       int64_t pixel_bytes) {
    const int64_t bytes = Columns(w, out_width) * pixel_bytes + 16;
    return ((bytes + 63) / 64 | 1) * 64;
  }
  static int64_t RowsBytes(const Window& w, int64_t out_width,
                           int64_t pixel_bytes) {
    const int64_t ld = LdRow(w, out_width, pixel_bytes);
    return Reach(w, Rows(w, ld)) * ld;
  }
  // Rows of the image that so many rows of the result see.
  static int64_t Reach(const Window& w, int64_t rows) {
    return (rows - 1) * w.stride_h + (w.kernel_h - 1) * w.dilation_h + 1;
  }
  // Rows of the result whose rows of the image stay in cache.
  static int64_t Rows(const Window& w, int64_t ld) {
    const int64_t rows =
        (S::kBlockBytes / ld - (w.kernel_h - 1) * w.dilation_h - 1) /
            w.stride_h +
        1;
    return rows < 1 ? 1 : SmallerOf(rows, 32);
  }

  template <typename T>
  static void Copy(const Int8ConvArgs& a, int64_t row, int64_t rows,
                   int64_t ld) {
    const Window& w = a.window;
    const ByteImage& x = a.x;
    const int64_t columns = Columns(w, a.out_width);
    for (int64_t i = 0; i < rows; ++i) {
      auto* to = reinterpret_cast<T*>(a.scratch + i * ld);
      if (row + i < 0 || row + i >= x.height) {
        FillBytes(x.zero, columns * x.channels, to);
        continue;
      }
      const uint8_t* from = x.data + (row + i) * x.ld_row;
      const int64_t begin = Between(w.pad_left, 0, columns);
      const int64_t end = Between(w.pad_left + x.width, begin, columns);
      FillBytes(x.zero, begin * x.channels, to);
      if (x.ld_pixel == x.channels) {
        CopyBytes<S>(from + (begin - w.pad_left) * x.channels,
                     (end - begin) * x.channels, to + begin * x.channels);
      } else {
        for (int64_t j = begin; j < end; ++j) {
          CopyBytes<S>(from + (j - w.pad_left) * x.ld_pixel, x.channels,
                       to + j * x.channels);
        }
      }
      FillBytes(x.zero, (columns - end) * x.channels, to + end * x.channels);
    }
  }
};

}  // namespace
}  // namespace millrace::models
