// Depthwise convolutions with channels in the lanes, for any vector width.
//
// A strip of pixels side by side is summed at once. Where the kernel's width
// and stride are common ones, a row of the kernel stays in registers and each
// column of the image is read once for all the pixels that see it:
//
//   columns  x0 x1 x2 x3 x4 …      3 taps, stride 1
//   pixel 0  w0 w1 w2
//   pixel 1     w0 w1 w2           each pixel still adds its taps in order
//
// Other kernels read every tap for every pixel. V is what scalar/vec1.h shows.
// Anonymous namespace.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/cpu/kernels/dense/epilogue.h"
#include "models/cpu/kernels/dense/quick_epilogue.h"
#include "models/cpu/kernels/dense/taps.h"

namespace millrace::models {
namespace {

template <class V>
class Depthwise {
 public:
  static void Run(const DepthwiseArgs& a) { Of(a, a.x.data); }

  // Of the image x of T, which V loads as vectors of floats.
  template <class T>
  static void Of(const DepthwiseArgs& a, const T* x) {
    const Window& w = a.window;
    const bool joined = w.dilation_w == 1;
    if (joined && w.kernel_w == 3 && w.stride_w == 1) return Rows<3, 1>(a, x);
    if (joined && w.kernel_w == 3 && w.stride_w == 2) return Rows<3, 2>(a, x);
    if (joined && w.kernel_w == 5 && w.stride_w == 1) return Rows<5, 1>(a, x);
    if (joined && w.kernel_w == 5 && w.stride_w == 2) return Rows<5, 2>(a, x);
    if (joined && w.kernel_w == 7 && w.stride_w == 1) return Rows<7, 1>(a, x);
    if (joined && w.kernel_w == 9 && w.stride_w == 1) return Rows<9, 1>(a, x);
    Rows<0, 0>(a, x);
  }

 private:
  using F = typename V::F;
  static constexpr int kLanes = V::kLanes;

  // kTaps of a row of the kernel, kStride apart; 0: any.
  template <int kTaps, int kStride, class T>
  static void Rows(const DepthwiseArgs& a, const T* image) {
    for (int64_t row = a.row_begin; row < a.row_end; ++row) {
      const Taps rows = RowTaps(a.x, a.window, row);
      for (int64_t column = 0; column < a.out_width;) {
        const int64_t left = a.out_width - column;
        if (left >= 8) {
          column += Pixels<kTaps, kStride, 8>(a, image, rows, row, column);
        } else if (left == 7) {
          column += Pixels<kTaps, kStride, 7>(a, image, rows, row, column);
        } else if (left >= 4) {
          column += Pixels<kTaps, kStride, 4>(a, image, rows, row, column);
        } else if (left >= 2) {
          column += Pixels<kTaps, kStride, 2>(a, image, rows, row, column);
        } else {
          column += Pixels<kTaps, kStride, 1>(a, image, rows, row, column);
        }
      }
    }
  }

  // Where the taps of a strip stand, counted in values.
  template <class T>
  struct Walk {
    const T* x;      // first row in the image, column `start`
    const float* w;  // first row
    int64_t rows;    // of taps
    int64_t x_row, w_row;
    int64_t pixel, channels;
    int64_t start;       // the strip's first column; may lie before the image
    int64_t begin, end;  // columns of the strip that lie in the image
    int64_t taps, stride, dilation;  // of a row
    int64_t width;
  };

  template <int kTaps, int kStride, int kCount, class T>
  static int64_t Pixels(const DepthwiseArgs& a, const T* image,
                        const Taps& rows, int64_t row, int64_t column) {
    const Window& w = a.window;
    const int64_t first = rows.start + rows.begin * w.dilation_h;
    const int64_t start = column * w.stride_w - w.pad_left;
    constexpr int kColumns = kStride * (kCount - 1) + kTaps;
    Walk<T> walk{.x = image,
                 .w = a.w + rows.begin * w.kernel_w * a.x.channels,
                 .rows = rows.end - rows.begin,
                 .x_row = w.dilation_h * a.x.ld_row,
                 .w_row = w.kernel_w * a.x.channels,
                 .pixel = a.x.ld_pixel,
                 .channels = a.x.channels,
                 .start = start,
                 .begin = start < 0 ? -start : 0,
                 .end = a.x.width - start,
                 .taps = w.kernel_w,
                 .stride = w.stride_w,
                 .dilation = w.dilation_w,
                 .width = a.x.width};
    // Without rows the place may lie outside of the image.
    if (walk.rows > 0) walk.x += first * a.x.ld_row;
    const bool inside = walk.begin == 0 && walk.end >= kColumns;
    const int64_t pixel = row * a.out_width + column;
    float* y = a.y + (pixel - a.y_row * a.out_width) * a.ld_y;
    const Epilogue e = From(a.epilogue, pixel, 0);
    const QuickEpilogue<V> quick(e);
    const auto load = [](const auto* p) { return V::Load(p); };
    int64_t c = a.channel_begin;
    for (; c + kLanes <= a.channel_end; c += kLanes) {
      F acc[kCount][1];
      if constexpr (kTaps == 0) {
        AnyTaps<kCount>(walk, c, load, acc);
      } else if (inside) {
        Slide<kTaps, kStride, kCount, true>(walk, c, load, acc);
      } else {
        Slide<kTaps, kStride, kCount, false>(walk, c, load, acc);
      }
      if (quick.takes()) quick.Apply(0, c, load, acc);
#pragma GCC unroll 8
      for (int p = 0; p < kCount; ++p) V::Store(y + p * a.ld_y + c, acc[p][0]);
    }
    if (const int64_t rest = a.channel_end - c; rest > 0) {
      const auto load_cut = [=](const auto* p) {
        return V::LoadFirst(p, rest);
      };
      F acc[kCount][1];
      if constexpr (kTaps == 0) {
        AnyTaps<kCount>(walk, c, load_cut, acc);
      } else {
        Slide<kTaps, kStride, kCount, false>(walk, c, load_cut, acc);
      }
      if (quick.takes()) quick.Apply(0, c, load_cut, acc);
#pragma GCC unroll 8
      for (int p = 0; p < kCount; ++p) {
        V::StoreFirst(y + p * a.ld_y + c, rest, acc[p][0]);
      }
    }
    if (!quick.takes()) {
      Finish<V>::Run(y + a.channel_begin, a.ld_y, kCount,
                     a.channel_end - a.channel_begin,
                     From(a.epilogue, pixel, a.channel_begin),
                     y + a.channel_begin, a.ld_y);
    }
    return kCount;
  }

  template <int kTaps, int kStride, int kCount, bool kInside, class T,
            class Load>
  static void Slide(const Walk<T>& walk, int64_t c, Load load,
                    F (&acc)[kCount][1]) {
    constexpr int kColumns = kStride * (kCount - 1) + kTaps;
#pragma GCC unroll 8
    for (int p = 0; p < kCount; ++p) acc[p][0] = V::Zero();
    const T* x_row = walk.x + (walk.start * walk.pixel + c);
    const float* w_row = walk.w + c;
    for (int64_t i = 0; i < walk.rows; ++i) {
      F w[kTaps];
#pragma GCC unroll 16
      for (int t = 0; t < kTaps; ++t) w[t] = load(w_row + t * walk.channels);
      const T* x = x_row;
#pragma GCC unroll 32
      for (int j = 0; j < kColumns; ++j, x += walk.pixel) {
        if constexpr (!kInside) {
          if (j < walk.begin || j >= walk.end) continue;
        }
        const F v = load(x);
#pragma GCC unroll 8
        for (int p = 0; p < kCount; ++p) {
          const int tap = j - p * kStride;
          if (tap >= 0 && tap < kTaps) acc[p][0] = V::Fma(v, w[tap], acc[p][0]);
        }
      }
      x_row += walk.x_row;
      w_row += walk.w_row;
    }
  }

  template <int kCount, class T, class Load>
  static void AnyTaps(const Walk<T>& walk, int64_t c, Load load,
                      F (&acc)[kCount][1]) {
#pragma GCC unroll 8
    for (int p = 0; p < kCount; ++p) acc[p][0] = V::Zero();
    const T* x_row = walk.x + c;
    const float* w_row = walk.w + c;
    for (int64_t i = 0; i < walk.rows; ++i) {
      for (int64_t t = 0; t < walk.taps; ++t) {
        const F w = load(w_row + t * walk.channels);
        int64_t column = walk.start + t * walk.dilation;
#pragma GCC unroll 8
        for (int p = 0; p < kCount; ++p, column += walk.stride) {
          if (column < 0 || column >= walk.width) continue;
          acc[p][0] = V::Fma(load(x_row + column * walk.pixel), w, acc[p][0]);
        }
      }
      x_row += walk.x_row;
      w_row += walk.w_row;
    }
  }
};

}  // namespace
}  // namespace millrace::models
