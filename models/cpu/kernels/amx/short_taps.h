// What pixels of a convolution see, gathered into rows, where a row of the
// kernel is short: images of few channels, as the first layer of a network has
// them. Rows of the image are copied once with their padding, as S has values;
// then one vector of a row of the image is one row of the kernel, and what is
// too much of it is written over by the next one.
//
//   image row   0 0 a b c d e f g h …        out   pixel 0 | 0 0 a b c | next …
//                 └ pixel 1, stride 2              pixel 1 | a b c d e |
//
// Args are ConvArgs or Int8ConvArgs; S and From as in dense/seen_by_pixels.h.
// Anonymous namespace.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "models/cpu/graph_int8_kernels.h"
#include "models/cpu/graph_kernels.h"

namespace millrace::models {
namespace {

template <class S, class From, class Args>
class ShortTaps {
 public:
  using E = typename S::E;

  // Whether such sizes may be gathered so; an image must also be dense.
  static bool Takes(const Window& w, int64_t channels) {
    return w.kernel_h <= kMostLines && w.dilation_h == 1 && w.dilation_w == 1 &&
           w.kernel_w * channels <= kVector;
  }
  static bool IsDense(const Args& a) { return a.x.ld_pixel == a.x.channels; }
  // Of the copied rows, whole cache lines.
  static int64_t ScratchBytes(const Window& w, int64_t out_width,
                              int64_t channels) {
    return w.kernel_h * LineBytes(w, out_width, channels);
  }

  // `lines` has ScratchBytes. Rows of the result have `filled` values and lie a
  // vector more apart at least.
  ShortTaps(const Args& a, const From* data, void* lines, int64_t filled)
      : a_(a),
        data_(data),
        lines_(static_cast<E*>(lines)),
        line_(LineBytes(a.window, a.out_width, a.x.channels) /
              static_cast<int64_t>(sizeof(E))),
        filled_(filled) {
    for (int64_t& row : held_) row = kNone;
  }

  // Clears what Gather leaves of rows behind their last values.
  void ClearEnds(int64_t rows, E* out, int64_t ld) const {
    const int64_t end = (a_.window.kernel_h - 1) * Run() + kVector;
    if (end >= filled_) return;
    for (int64_t i = 0; i < rows; ++i) {
      __builtin_memset(out + i * ld + end, 0, sizeof(E) * (filled_ - end));
    }
  }

  void Gather(int64_t pixel, int64_t pixels, E* out, int64_t ld) {
    const Window& w = a_.window;
    while (pixels > 0) {
      const int64_t out_row = pixel / a_.out_width;
      const int64_t column = pixel - out_row * a_.out_width;
      const int64_t left = a_.out_width - column;
      const int64_t count = pixels < left ? pixels : left;
      const int64_t step = w.stride_w * a_.x.channels;
      const int64_t top = out_row * w.stride_h - w.pad_top;
      for (int64_t i = 0; i < w.kernel_h; ++i) {
        const E* from = Line(top + i) + column * step;
        E* to = out + i * Run();
        if (i + 1 < w.kernel_h) {
          for (int64_t p = 0; p < count; ++p, from += step, to += ld) {
            _mm512_storeu_si512(to, _mm512_loadu_si512(from));
          }
        } else {
          const __mmask64 seen = First(Run());
          const __mmask64 room = First(filled_ - i * Run());
          for (int64_t p = 0; p < count; ++p, from += step, to += ld) {
            _mm512_mask_storeu_epi8(to, room,
                                    _mm512_maskz_loadu_epi8(seen, from));
          }
        }
      }
      out += count * ld;
      pixel += count;
      pixels -= count;
    }
  }

 private:
  static constexpr int64_t kMostLines = 16;
  static constexpr int64_t kVector = 64 / static_cast<int64_t>(sizeof(E));
  static constexpr int64_t kNone = INT64_MIN;

  static int64_t LineBytes(const Window& w, int64_t out_width,
                           int64_t channels) {
    const int64_t pixels = (out_width - 1) * w.stride_w + w.kernel_w;
    const auto each = static_cast<int64_t>(sizeof(E));
    return (pixels * channels * each + 64 + 63) / 64 * 64;
  }
  // The first n values of a vector.
  static __mmask64 First(int64_t n) {
    const int64_t bytes = n * static_cast<int64_t>(sizeof(E));
    return bytes >= 64 ? ~__mmask64{0} : (__mmask64{1} << bytes) - 1;
  }
  int64_t Run() const { return a_.window.kernel_w * a_.x.channels; }

  // A row of the image with its padding. Rows that one row of the result sees
  // fall to different places.
  const E* Line(int64_t row) {
    const int64_t lines = a_.window.kernel_h;
    const int64_t at = (row % lines + lines) % lines;
    E* const to = lines_ + at * line_;
    if (held_[at] != row) {
      held_[at] = row;
      Fill(row, to);
    }
    return to;
  }
  void Fill(int64_t row, E* to) const {
    const auto& x = a_.x;
    if (row < 0 || row >= x.height) return Pad(line_, to);
    const int64_t begin = a_.window.pad_left * x.channels;
    const int64_t left = begin < line_ ? begin : line_;
    const int64_t all = x.width * x.channels;
    const int64_t inside = all < line_ - left ? all : line_ - left;
    Pad(left, to);
    S::Copy(data_ + row * x.ld_row, inside, to + left);
    Pad(line_ - left - inside, to + left + inside);
  }
  void Pad(int64_t n, E* to) const {
    __builtin_memset(to, PaddingOf(a_.x), sizeof(E) * n);
  }
  static int PaddingOf(const Image&) { return 0; }
  static int PaddingOf(const ByteImage& x) { return x.zero; }

  const Args& a_;
  const From* const data_;
  E* const lines_;
  const int64_t line_;  // values
  const int64_t filled_;
  int64_t held_[kMostLines];  // the row of the image in each place
};

}  // namespace
}  // namespace millrace::models
