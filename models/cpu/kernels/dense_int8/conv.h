// Convolution of bytes as a product: what a block of output pixels sees of the
// image is gathered into rows, zero points where it lies outside, and
// multiplied. A 1 x 1 kernel that skips nothing needs no gathering.
//
// S is what kernels/dense_int8/gemm.h says. Anonymous namespace.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/cpu/kernels/dense_int8/gemm.h"

namespace millrace::models {
namespace {

template <class S>
void CopyBytes(const uint8_t* from, int64_t n, uint8_t* to) {
  constexpr int64_t kBytes = S::kRawBytes;
  for (; n >= kBytes; n -= kBytes, from += kBytes, to += kBytes) {
    S::StoreRaw(to, kBytes, S::LoadRaw(from, kBytes));
  }
  if (n > 0) S::StoreRaw(to, n, S::LoadRaw(from, n));
}

template <class S>
class Int8Conv {
 public:
  static int64_t ScratchBytes(int64_t k) {
    return Int8Gemm<S>::BlockRows(k) * LdRow(k);
  }

  static void Run(const Int8ConvArgs& a) {
    const Window& window = a.window;
    const int64_t k = window.kernel_h * window.kernel_w * a.x.channels;
    const typename Int8Gemm<S>::Job job{
        a.w,        a.n, k, a.panel_begin, a.panel_end, {a.y, a.y_f32, a.ld_y},
        &a.epilogue};
    const bool direct = PixelsAreRows(a);
    const int64_t ld = LdRow(k);
    const int64_t block = Int8Gemm<S>::BlockRows(k);
    for (int64_t p = a.pixel_begin; p < a.pixel_end; p += block) {
      const int64_t pixels = SmallerOf(a.pixel_end - p, block);
      if (direct) {
        Int8Gemm<S>::Block(job, a.x.data + p * a.x.ld_pixel, a.x.ld_pixel, p,
                           pixels);
      } else {
        Gather(a, p, pixels, k, ld);
        Int8Gemm<S>::Block(job, a.scratch, ld, p, pixels);
      }
    }
  }

 private:
  static constexpr int64_t kShort = 4 * S::V::kLanes;  // bytes of Taps

  // Rows a line more than a multiple of 256 bytes apart: they do not fall on
  // each other in the cache. Up to three bytes behind a row meet weights of 0.
  static int64_t LdRow(int64_t k) { return (k + 3 + 255) / 256 * 256 + 64; }

  static bool PixelsAreRows(const Int8ConvArgs& a) {
    const Window& w = a.window;
    return w.kernel_h == 1 && w.kernel_w == 1 && w.stride_h == 1 &&
           w.stride_w == 1 && w.pad_top == 0 && w.pad_left == 0 &&
           a.out_width == a.x.width && a.x.channels % 4 == 0 &&
           a.x.ld_row == a.x.width * a.x.ld_pixel;
  }

  static void Fill(uint8_t byte, int64_t n, uint8_t* to) {
    for (int64_t i = 0; i < n; ++i) to[i] = byte;
  }

  static int64_t Between(int64_t v, int64_t low, int64_t high) {
    return v < low ? low : v > high ? high : v;
  }

  // Writes what each pixel sees into rows of the scratch; pixels of one output
  // row go together, and for each row of the kernel.
  static void Gather(const Int8ConvArgs& a, int64_t pixel, int64_t pixels,
                     int64_t k, int64_t ld) {
    const Window& w = a.window;
    const int64_t run = w.kernel_w * a.x.channels;
    // Neighbouring taps see neighbouring bytes: a run lies in one piece.
    const bool joined = w.dilation_w == 1 && a.x.ld_pixel == a.x.channels;
    uint8_t* out = a.scratch;
    while (pixels > 0) {
      const int64_t out_row = pixel / a.out_width;
      const int64_t column = pixel - out_row * a.out_width;
      const int64_t count = SmallerOf(pixels, a.out_width - column);
      for (int64_t i = 0; i < w.kernel_h; ++i) {
        const int64_t row = out_row * w.stride_h - w.pad_top + i * w.dilation_h;
        uint8_t* to = out + i * run;
        const bool in_image = row >= 0 && row < a.x.height;
        const bool is_short = joined && in_image && run <= kShort;
        for (int64_t p = 0; p < count; ++p, to += ld) {
          const int64_t left = (column + p) * w.stride_w - w.pad_left;
          if (is_short && IsInside(a.x, row, left, w.kernel_w)) {
            // What is written behind the run is written again, since the rows
            // of the kernel come in turn.
            S::StoreTaps(
                to, kShort,
                S::LoadTaps(a.x.data + row * a.x.ld_row + left * a.x.channels));
          } else if (!in_image) {
            Fill(a.x.zero, run, to);
          } else if (joined) {
            Run(a.x, row, left, run, to);
          } else {
            Taps(a, row, left, to);
          }
        }
      }
      for (int64_t p = 0; p < count; ++p) Fill(0, 3, out + p * ld + k);
      out += count * ld;
      pixel += count;
      pixels -= count;
    }
  }

  // Whether columns from `left` on are, and a short run can be read there.
  static bool IsInside(const ByteImage& x, int64_t row, int64_t left,
                       int64_t columns) {
    const int64_t rest = (x.width - left) * x.channels;
    return left >= 0 && left + columns <= x.width &&
           (x.height - 1 - row) * x.ld_row + rest >= kShort;
  }

  static void Run(const ByteImage& x, int64_t row, int64_t left, int64_t run,
                  uint8_t* to) {
    const int64_t begin = Between(-left * x.channels, 0, run);
    const int64_t end = Between((x.width - left) * x.channels, begin, run);
    if (begin > 0) Fill(x.zero, begin, to);
    if (end > begin) {
      const int64_t from = row * x.ld_row + left * x.channels + begin;
      CopyBytes<S>(x.data + from, end - begin, to + begin);
    }
    if (end < run) Fill(x.zero, run - end, to + end);
  }

  static void Taps(const Int8ConvArgs& a, int64_t row, int64_t left,
                   uint8_t* to) {
    const ByteImage& x = a.x;
    for (int64_t j = 0; j < a.window.kernel_w; ++j, to += x.channels) {
      const int64_t column = left + j * a.window.dilation_w;
      if (column < 0 || column >= x.width) {
        Fill(x.zero, x.channels, to);
      } else {
        CopyBytes<S>(x.data + row * x.ld_row + column * x.ld_pixel, x.channels,
                     to);
      }
    }
  }
};

}  // namespace
}  // namespace millrace::models
