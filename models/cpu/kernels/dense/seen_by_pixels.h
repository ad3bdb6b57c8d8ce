// im2col: what each output pixel of a convolution reads, gathered into rows. S
// gives the values of a row and how an image's, of type From, become them, as
// in kernels/dense/gemm.h. Anonymous namespace.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/cpu/graph_kernels.h"

namespace millrace::models {
namespace {

// 1 x 1 kernels that skip nothing: pixels are rows as they stand.
inline bool PixelsAreRows(const ConvArgs& a) {
  const Window& w = a.window;
  return w.kernel_h == 1 && w.kernel_w == 1 && w.stride_h == 1 &&
         w.stride_w == 1 && w.pad_top == 0 && w.pad_left == 0 &&
         a.out_width == a.x.width && a.x.ld_row == a.x.width * a.x.ld_pixel;
}

template <class S, class From>
class SeenByPixels {
 public:
  using E = typename S::E;

  // Values that a pixel sees.
  static int64_t Values(const ConvArgs& a) {
    return a.window.kernel_h * a.window.kernel_w * a.x.channels;
  }

  // Writes values [k0, k1) of what each pixel sees into rows, ld values apart;
  // 0 beyond the last one. Pixels of one output row go together, and for each
  // row of the kernel: then only the place in the image row changes.
  static void Gather(const ConvArgs& a, const From* data, int64_t pixel,
                     int64_t pixels, int64_t k0, int64_t k1, E* out,
                     int64_t ld) {
    const Window& w = a.window;
    const int64_t row_values = w.kernel_w * a.x.channels;
    if (const int64_t all = Values(a); k1 > all) {
      for (int64_t i = 0; i < pixels; ++i) {
        Clear(k1 - all, out + i * ld + all - k0);
      }
      k1 = all;
    }
    while (pixels > 0) {
      const int64_t out_row = pixel / a.out_width;
      const int64_t column = pixel - out_row * a.out_width;
      const int64_t count = Smaller(pixels, a.out_width - column);
      int64_t tap_row = k0 / row_values;
      for (int64_t k = k0; k < k1; ++tap_row) {
        const int64_t from = k - tap_row * row_values;
        const int64_t to = Smaller(k1 - tap_row * row_values, row_values);
        const Strip strip{
            .row = out_row * w.stride_h - w.pad_top + tap_row * w.dilation_h,
            .left = column * w.stride_w - w.pad_left,
            .count = count,
            .from = from,
            .to = to};
        GatherStrip(a, data, strip, out + k - k0, ld);
        k += to - from;
      }
      out += count * ld;
      pixel += count;
      pixels -= count;
    }
  }

 private:
  static int64_t Smaller(int64_t a, int64_t b) { return a < b ? a : b; }
  static void Clear(int64_t n, E* to) {
    __builtin_memset(to, 0, n * sizeof(E));
  }

  // What pixels of one output row see of one image row, values [from, to) of a
  // row of the kernel; `left` is where the first one's kernel begins.
  struct Strip {
    int64_t row;
    int64_t left;
    int64_t count;
    int64_t from;
    int64_t to;
  };

  static void GatherStrip(const ConvArgs& a, const From* data, const Strip& s,
                          E* out, int64_t ld) {
    const Image& x = a.x;
    const int64_t run = s.to - s.from;
    const bool outside = s.row < 0 || s.row >= x.height;
    // Neighbouring taps see neighbouring values: a run lies in one piece.
    const bool joined = a.window.dilation_w == 1 && x.ld_pixel == x.channels;
    int64_t left = s.left;
    for (int64_t i = 0; i < s.count; ++i, left += a.window.stride_w) {
      E* to = out + i * ld;
      if (outside) {
        Clear(run, to);
      } else if (!joined) {
        Taps(a, data, s.row, left, s.from, s.to, to);
      } else {
        // Where the row of the kernel begins; may lie before the image.
        const int64_t start = s.row * x.ld_row + left * x.channels;
        // Values [begin, end) are in the image.
        const int64_t begin = Between(-left * x.channels, s.from, s.to);
        const int64_t end = Between((x.width - left) * x.channels, begin, s.to);
        if (begin > s.from) Clear(begin - s.from, to);
        if (end > begin)
          S::Copy(data + (start + begin), end - begin, to + begin - s.from);
        if (end < s.to) Clear(s.to - end, to + end - s.from);
      }
    }
  }

  static void Taps(const ConvArgs& a, const From* data, int64_t row,
                   int64_t left, int64_t from, int64_t to, E* out) {
    const Image& x = a.x;
    while (from < to) {
      const int64_t tap = from / x.channels;
      const int64_t column = left + tap * a.window.dilation_w;
      const int64_t channel = from - tap * x.channels;
      const int64_t run = Smaller(x.channels - channel, to - from);
      if (column < 0 || column >= x.width) {
        Clear(run, out);
      } else {
        S::Copy(data + row * x.ld_row + column * x.ld_pixel + channel, run,
                out);
      }
      from += run;
      out += run;
    }
  }

  static int64_t Between(int64_t v, int64_t low, int64_t high) {
    return v < low ? low : v > high ? high : v;
  }
};

}  // namespace
}  // namespace millrace::models
