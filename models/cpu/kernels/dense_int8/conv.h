// Convolution of bytes as a product: what a block of output pixels sees of the
// image is gathered into rows, zero points where it lies outside, and
// multiplied. A 1 x 1 kernel that skips nothing needs no gathering.
//
// S is what kernels/dense_int8/gemm.h says. Anonymous namespace.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/cpu/kernels/dense_int8/copy.h"
#include "models/cpu/kernels/dense_int8/gather.h"
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
    const bool as_is = Int8Gather<S>::PixelsAreRows(a) && a.x.channels % 4 == 0;
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
        Int8Gather<S>::Gather(a, p, pixels, row);
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
};

}  // namespace
}  // namespace millrace::models
