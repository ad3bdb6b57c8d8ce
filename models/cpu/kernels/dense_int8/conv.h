// Convolution of bytes as a product: what a block of output pixels sees of the
// image is gathered into rows, zero points where it lies outside, and
// multiplied. A 1 x 1 kernel that skips nothing needs no gathering.
//
// S is what kernels/dense_int8/gemm.h says. Anonymous namespace.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/cpu/kernels/dense_int8/copy.h"
#include "models/cpu/kernels/dense_int8/gemm.h"
#include "models/cpu/kernels/dense_int8/rows.h"

namespace millrace::models {
namespace {

template <class S>
class Int8Conv {
 public:
  static int64_t ScratchBytes(const Window& w, int64_t out_width,
                              int64_t channels) {
    const int64_t k = w.kernel_h * w.kernel_w * channels;
    int64_t most = BlockBytes(k);
    if (S::kPairs && BlockBytes(2 * k) > most) most = BlockBytes(2 * k);
    // More outputs are gathered for.
    if (!OrderOf<S>(1, w, channels).by_rows) return most;
    const int64_t rows = Int8RowConv<S>::ScratchBytes(w, out_width, channels);
    return rows > most ? rows : most;
  }

  static void Run(const Int8ConvArgs& a) {
    const Int8Order order = OrderOf<S>(a.n, a.window, a.x.channels);
    const typename Int8Gemm<S>::Job job{
        Int8Panels<S>::Read(a.w, a.n, order.k()),
        a.n,
        order.k(),
        a.panel_begin,
        a.panel_end,
        {a.y, a.y_f32, a.ld_y},
        &a.epilogue};
    if (a.pixel_begin >= a.pixel_end) return;
    if constexpr (S::kPairs) {
      if (job.w.words) return Run<uint16_t>(a, order, job);
    }
    Run<uint8_t>(a, order, job);
  }

 private:
  template <typename T>
  static void Run(const Int8ConvArgs& a, const Int8Order& order,
                  const typename Int8Gemm<S>::Job& job) {
    if (order.by_rows) {
      Int8RowConv<S>::template Run<T>(a, order, job);
    } else {
      Blocks<T>(a, job);
    }
  }

  static constexpr int64_t kShort = 4 * S::V::kLanes;  // bytes of Taps

  static int64_t BlockBytes(int64_t row_bytes) {
    return Int8Gemm<S>::BlockRows(row_bytes) * LdRow(row_bytes);
  }

  // Rows of the product hold a T for each byte.
  template <typename T>
  static void Blocks(const Int8ConvArgs& a,
                     const typename Int8Gemm<S>::Job& job) {
    constexpr bool kBytes = sizeof(T) == 1;
    const int64_t row_bytes = job.k * static_cast<int64_t>(sizeof(T));
    const int64_t ld = LdRow(row_bytes);
    const int64_t block = Int8Gemm<S>::BlockRows(row_bytes);
    const bool as_is = PixelsAreRows(a);
    for (int64_t p = a.pixel_begin; p < a.pixel_end; p += block) {
      const int64_t pixels = SmallerOf(a.pixel_end - p, block);
      if (kBytes && as_is) {
        Int8Gemm<S>::Block(job, a.x.data + p * a.x.ld_pixel, a.x.ld_pixel, p,
                           pixels);
        continue;
      }
      const auto row = [&](int64_t i) {
        return reinterpret_cast<T*>(a.scratch + i * ld);
      };
      if (as_is) {
        for (int64_t i = 0; i < pixels; ++i) {
          CopyBytes<S>(a.x.data + (p + i) * a.x.ld_pixel, job.k, row(i));
        }
      } else {
        Gather(a, p, pixels, row);
        for (int64_t i = 0; i < pixels; ++i) FillBytes(0, 3, row(i) + job.k);
      }
      Int8Gemm<S>::Block(job, a.scratch, ld, p, pixels);
    }
  }

  // Rows a line more than a multiple of 256 bytes apart: they do not fall on
  // each other in the cache. Up to three values behind a row meet weights of 0.
  static int64_t LdRow(int64_t bytes) {
    return (bytes + 6 + 255) / 256 * 256 + 64;
  }

  static bool PixelsAreRows(const Int8ConvArgs& a) {
    const Window& w = a.window;
    return w.kernel_h == 1 && w.kernel_w == 1 && w.stride_h == 1 &&
           w.stride_w == 1 && w.pad_top == 0 && w.pad_left == 0 &&
           a.out_width == a.x.width && a.x.channels % 4 == 0 &&
           a.x.ld_row == a.x.width * a.x.ld_pixel;
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
