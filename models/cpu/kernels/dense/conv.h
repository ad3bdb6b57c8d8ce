// Convolution as a product of what each output pixel sees with the weights.
//
//   1 x 1 kernels that skip nothing: pixels are rows as they stand, unless they
//   are to be rounded.
//   Wide images: what a pixel sees of one row of the image is one run of
//   values, (kw, c), and the next pixel's run is a fixed way on. So the rows of
//   the image, padded once, are rows of the product, in a piece for each kh.
//   Others: what a block of pixels sees is gathered into rows, a part of
//   (kh, kw, c) at a time.
//
// A product's steps are words of 32 bits: one f32, or two values of 16 bits, to
// which an image is rounded on its way into a row, or was before. From: what
// the image is of.
//
// S is what kernels/dense/gemm.h says. Anonymous namespace.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/cpu/kernels/dense/gemm.h"
#include "models/cpu/kernels/dense/padded_rows.h"
#include "models/cpu/kernels/dense/seen_by_pixels.h"

namespace millrace::models {
namespace {

template <class S, class From = float>
class Conv {
 public:
  static int64_t ScratchFloats(const ConvArgs& a) {
    if (kPerWord == 1 && PixelsAreRows(a)) return 0;
    if (IsWide(a)) return Padded::RowsOf(a.window) * Padded::RowWords(a);
    return GatheredFloats(a) + Sums(a);
  }

  // `data`: the image.
  static void Run(const ConvArgs& a, const From* data) {
    const int64_t k = Words(a);
    GemmArgs g{.row_begin = a.pixel_begin,
               .row_end = a.pixel_end,
               .w = a.w,
               .n = a.n,
               .k = k,
               .panel_begin = a.panel_begin,
               .panel_end = a.panel_end,
               .y = a.y,
               .y_bf16 = a.y_bf16,
               .ld_y = a.ld_y,
               .epilogue = a.epilogue};
    float* waiting = a.scratch + GatheredFloats(a);
    if (kIsRow && PixelsAreRows(a)) {
      return Gemm<S>::Run(g, reinterpret_cast<const float*>(data),
                          a.x.ld_pixel / kPerWord, waiting);
    }
    if (IsWide(a)) return RunWide(a, data, g);
    const int64_t step = Gemm<S>::KStep(k);
    const int64_t ld = LdRow(SmallerOf(k, S::kBlockK));
    const int64_t block =
        Gemm<S>::EvenRows(a.pixel_end - a.pixel_begin, kPixels);
    for (int64_t p = a.pixel_begin; p < a.pixel_end; p += block) {
      const int64_t pixels = SmallerOf(a.pixel_end - p, block);
      for (int64_t k0 = 0; k0 < k; k0 += step) {
        const int64_t k1 = SmallerOf(k0 + step, k);
        Seen::Gather(a, data, p, pixels, k0 * kPerWord, k1 * kPerWord,
                     reinterpret_cast<E*>(a.scratch), ld * kPerWord);
        Gemm<S>::Block(g, a.scratch, ld, p, pixels, k0, k1, waiting);
      }
    }
  }

 private:
  using E = typename S::E;
  using Padded = PaddedRows<S, From>;
  using Seen = SeenByPixels<S, From>;
  static constexpr int64_t kPerWord = sizeof(float) / sizeof(E);
  static constexpr bool kIsRow = sizeof(From) == sizeof(E);

  static int64_t GatheredFloats(const ConvArgs& a) {
    return kMostPixels * LdRow(SmallerOf(Words(a), S::kBlockK));
  }
  // Where results are rounded.
  static int64_t Sums(const ConvArgs& a) {
    return S::kRounds ? Gemm<S>::SumFloats(kMostPixels, a.n, Words(a)) : 0;
  }

  // Words that the values that a pixel sees fill.
  static int64_t Words(const ConvArgs& a) {
    return (Seen::Values(a) + kPerWord - 1) / kPerWord;
  }

  // Output rows of at least two tiles, sums of a length that a panel's weights
  // stay near meanwhile, and runs and ways of whole words.
  static bool IsWide(const ConvArgs& a) {
    const Window& w = a.window;
    return !PixelsAreRows(a) && a.out_width >= 2 * S::kRows &&
           w.dilation_w == 1 && a.x.ld_pixel == a.x.channels &&
           Words(a) <= kMostWideSteps &&
           w.kernel_w * a.x.channels % kPerWord == 0 &&
           w.stride_w * a.x.channels % kPerWord == 0 &&
           Padded::RowsOf(w) <= Padded::kMostRows && w.pad_left < w.kernel_w &&
           w.pad_top < Padded::RowsOf(w);
  }

  static void RunWide(const ConvArgs& a, const From* data, GemmArgs& g) {
    const Window& w = a.window;
    const int64_t ld = w.stride_w * a.x.channels / kPerWord;
    Padded padded(a, data);
    int64_t offsets[Padded::kMostRows];
    for (int64_t p = a.pixel_begin; p < a.pixel_end;) {
      const int64_t row = p / a.out_width;
      const int64_t column = p - row * a.out_width;
      const int64_t count = SmallerOf(a.out_width - column, a.pixel_end - p);
      for (int64_t i = 0; i < w.kernel_h; ++i) {
        offsets[i] = padded.At(row * w.stride_h - w.pad_top + i * w.dilation_h);
      }
      Gemm<S>::Pieces(g, a.scratch + column * ld, ld, p, count, w.kernel_h,
                      offsets);
      p += count;
    }
  }

  static constexpr int64_t kMostWideSteps = 1152;
  // Gathered rows are to stay in L2 beside a panel.
  static constexpr int64_t kPixels = 96 * kPerWord;
  static constexpr int64_t kMostPixels = Gemm<S>::MostRows(kPixels);

  // Rows a line more than a multiple of 256 bytes apart: they do not fall on
  // each other in the cache.
  static int64_t LdRow(int64_t words) { return (words + 63) / 64 * 64 + 16; }
};

}  // namespace
}  // namespace millrace::models
