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
    for (int64_t p = a.pixel_begin; p < a.pixel_end; p += kPixels) {
      const int64_t pixels = SmallerOf(a.pixel_end - p, kPixels);
      for (int64_t k0 = 0; k0 < k; k0 += step) {
        const int64_t k1 = SmallerOf(k0 + step, k);
        Gather(a, data, p, pixels, k0 * kPerWord, k1 * kPerWord, ld);
        Gemm<S>::Block(g, a.scratch, ld, p, pixels, k0, k1, waiting);
      }
    }
  }

 private:
  using E = typename S::E;
  using Padded = PaddedRows<S, From>;
  static constexpr int64_t kPerWord = sizeof(float) / sizeof(E);
  static constexpr bool kIsRow = sizeof(From) == sizeof(E);

  static int64_t GatheredFloats(const ConvArgs& a) {
    return kPixels * LdRow(SmallerOf(Words(a), S::kBlockK));
  }
  // Where results are rounded.
  static int64_t Sums(const ConvArgs& a) {
    return S::kRounds ? Gemm<S>::SumFloats(kPixels, a.n, Words(a)) : 0;
  }

  // Values that a pixel sees, and the words they fill.
  static int64_t Values(const ConvArgs& a) {
    return a.window.kernel_h * a.window.kernel_w * a.x.channels;
  }
  static int64_t Words(const ConvArgs& a) {
    return (Values(a) + kPerWord - 1) / kPerWord;
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

  // Rows a line more than a multiple of 256 bytes apart: they do not fall on
  // each other in the cache.
  static int64_t LdRow(int64_t words) { return (words + 63) / 64 * 64 + 16; }

  static bool PixelsAreRows(const ConvArgs& a) {
    const Window& w = a.window;
    return w.kernel_h == 1 && w.kernel_w == 1 && w.stride_h == 1 &&
           w.stride_w == 1 && w.pad_top == 0 && w.pad_left == 0 &&
           a.out_width == a.x.width && a.x.ld_row == a.x.width * a.x.ld_pixel;
  }

  static void Clear(int64_t n, E* to) {
    __builtin_memset(to, 0, n * sizeof(E));
  }

  // Writes values [k0, k1) of what each pixel sees into rows of the scratch, 0
  // for the one that a last word may lack. Pixels of one output row go
  // together, and for each row of the kernel: then only the place in the image
  // row changes.
  static void Gather(const ConvArgs& a, const From* data, int64_t pixel,
                     int64_t pixels, int64_t k0, int64_t k1, int64_t ld_words) {
    const Window& w = a.window;
    const int64_t row_values = w.kernel_w * a.x.channels;
    const int64_t ld = ld_words * kPerWord;
    E* out = reinterpret_cast<E*>(a.scratch);
    if (const int64_t all = Values(a); k1 > all) {
      for (int64_t i = 0; i < pixels; ++i) out[i * ld + all - k0] = E{};
      k1 = all;
    }
    while (pixels > 0) {
      const int64_t out_row = pixel / a.out_width;
      const int64_t column = pixel - out_row * a.out_width;
      const int64_t count = SmallerOf(pixels, a.out_width - column);
      int64_t tap_row = k0 / row_values;
      for (int64_t k = k0; k < k1; ++tap_row) {
        const int64_t from = k - tap_row * row_values;
        const int64_t to = SmallerOf(k1 - tap_row * row_values, row_values);
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
      const int64_t run = SmallerOf(x.channels - channel, to - from);
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
