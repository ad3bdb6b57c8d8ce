// Depthwise convolutions, pools and means over columns, with channels in the
// lanes, for any vector width. V is what scalar/vec1.h shows. Anonymous
// namespace.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/cpu/kernels/dense/epilogue.h"

namespace millrace::models {
namespace {

// Taps [begin, end) of a kernel that lie in the image, and the place of tap 0.
struct Taps {
  int64_t start;
  int64_t begin;
  int64_t end;
};

inline Taps TapsOf(int64_t out, int64_t stride, int64_t pad, int64_t dilation,
                   int64_t kernel, int64_t size) {
  Taps t{out * stride - pad, 0, kernel};
  if (t.start < 0) t.begin = (-t.start + dilation - 1) / dilation;
  if (t.start + (kernel - 1) * dilation >= size) {
    const int64_t room = size - t.start;
    t.end = room > 0 ? (room + dilation - 1) / dilation : 0;
  }
  if (t.begin > t.end) t.begin = t.end;
  return t;
}
inline Taps RowTaps(const Image& x, const Window& w, int64_t out_row) {
  return TapsOf(out_row, w.stride_h, w.pad_top, w.dilation_h, w.kernel_h,
                x.height);
}
inline Taps ColumnTaps(const Image& x, const Window& w, int64_t out_column) {
  return TapsOf(out_column, w.stride_w, w.pad_left, w.dilation_w, w.kernel_w,
                x.width);
}

template <class V>
class Windows {
 public:
  static void Depthwise(const DepthwiseArgs& a) {
    for (int64_t row = a.row_begin; row < a.row_end; ++row) {
      const Taps rows = RowTaps(a.x, a.window, row);
      for (int64_t column = 0; column < a.out_width;) {
        const Taps taps = ColumnTaps(a.x, a.window, column);
        // Pixels side by side share weights where they have the same taps.
        int64_t count = 1;
        while (count < kPixels && column + count < a.out_width &&
               SameTaps(taps, ColumnTaps(a.x, a.window, column + count))) {
          ++count;
        }
        if (count < kPixels) count = count >= 4 ? 4 : count >= 2 ? 2 : 1;
        const int64_t pixel = row * a.out_width + column;
        float* y = a.y + pixel * a.ld_y;
        if (count == kPixels) {
          Channels<kPixels>(a, rows, taps, y);
        } else if (count == 4) {
          Channels<4>(a, rows, taps, y);
        } else if (count == 2) {
          Channels<2>(a, rows, taps, y);
        } else {
          Channels<1>(a, rows, taps, y);
        }
        Finish<V>::Run(y, a.ld_y, count, a.x.channels,
                       From(a.epilogue, pixel, 0), y, a.ld_y);
        column += count;
      }
    }
  }

  static void Pool(const PoolArgs& a) {
    const Window& w = a.window;
    for (int64_t row = a.row_begin; row < a.row_end; ++row) {
      const Taps rows = RowTaps(a.x, w, row);
      for (int64_t column = 0; column < a.out_width; ++column) {
        const Taps columns = ColumnTaps(a.x, w, column);
        float* y = a.y + (row * a.out_width + column) * a.ld_y;
        if (a.kind == PoolKind::kMax) {
          PoolPixel<true>(a, rows, columns, 1.0f, y);
          continue;
        }
        int64_t count = rows.end - rows.begin;
        int64_t across = columns.end - columns.begin;
        if (a.kind == PoolKind::kMeanPadded) {
          count =
              Padded(rows, w.kernel_h, w.dilation_h, a.x.height + a.pad_bottom);
          across = Padded(columns, w.kernel_w, w.dilation_w,
                          a.x.width + a.pad_right);
        }
        PoolPixel<false>(a, rows, columns, static_cast<float>(count * across),
                         y);
      }
    }
  }

  static void ColumnMeans(const float* x, int64_t rows, int64_t n, int64_t ld,
                          float* y) {
    const F divisor = V::Set(static_cast<float>(rows));
    for (int64_t c = 0; c < n; c += kLanes) {
      F total = V::Zero();
      for (int64_t r = 0; r < rows;) {
        F sum = V::Zero();
        for (const int64_t end = r + 64 < rows ? r + 64 : rows; r < end; ++r) {
          sum = V::Add(sum, V::LoadFirst(x + r * ld + c, n - c));
        }
        total = V::Add(total, sum);
      }
      V::StoreFirst(y + c, n - c, V::Div(total, divisor));
    }
  }

 private:
  using F = typename V::F;
  static constexpr int kLanes = V::kLanes;
  static constexpr int kPixels = 8;

  static bool SameTaps(const Taps& a, const Taps& b) {
    return a.begin == b.begin && a.end == b.end;
  }
  // Taps in the image or its padding; the first ones always are.
  static int64_t Padded(const Taps& t, int64_t kernel, int64_t dilation,
                        int64_t size) {
    const int64_t room = (size - t.start + dilation - 1) / dilation;
    return room < kernel ? room : kernel;
  }

  // Where the taps of a pixel stand, counted in floats.
  struct Walk {
    const float* x;  // first tap
    const float* w;
    int64_t rows, columns;  // taps
    int64_t x_row, x_column, w_row, w_column;
    int64_t pixel;  // to the next pixel's tap
  };

  // Sums of kCount neighbouring pixels with the same taps, all channels.
  template <int kCount>
  static void Channels(const DepthwiseArgs& a, const Taps& rows,
                       const Taps& columns, float* y) {
    const Window& w = a.window;
    const int64_t row = rows.start + rows.begin * w.dilation_h;
    const int64_t column = columns.start + columns.begin * w.dilation_w;
    const int64_t channels = a.x.channels;
    Walk walk{.x = a.x.data,
              .w = a.w + (rows.begin * w.kernel_w + columns.begin) * channels,
              .rows = rows.end - rows.begin,
              .columns = columns.end - columns.begin,
              .x_row = w.dilation_h * a.x.ld_row,
              .x_column = w.dilation_w * a.x.ld_pixel,
              .w_row = w.kernel_w * channels,
              .w_column = channels,
              .pixel = w.stride_w * a.x.ld_pixel};
    // Without taps the place may lie outside of the image.
    if (walk.rows > 0 && walk.columns > 0) {
      walk.x += row * a.x.ld_row + column * a.x.ld_pixel;
    } else {
      walk.rows = 0;
    }
    const int64_t ld_y = a.ld_y;
    int64_t c = 0;
    for (; c + kLanes <= channels; c += kLanes) {
      Pixels<kCount>(
          walk, c, [](const float* p) { return V::Load(p); },
          [=](int p, F v) { V::Store(y + p * ld_y + c, v); });
    }
    const int64_t rest = channels - c;
    if (rest == 0) return;
    Pixels<kCount>(
        walk, c, [=](const float* p) { return V::LoadFirst(p, rest); },
        [=](int p, F v) { V::StoreFirst(y + p * ld_y + c, rest, v); });
  }

  template <int kCount, class Load, class Store>
  static void Pixels(const Walk& walk, int64_t c, Load load, Store store) {
    // Pixels in threes behind one pointer, as rows of a product.
    constexpr int kThrees = (kCount + 2) / 3;
    const int64_t step = walk.pixel;
    F acc[kCount];
#pragma GCC unroll 8
    for (int p = 0; p < kCount; ++p) acc[p] = V::Zero();
    const float* x_row = walk.x + c;
    const float* w_row = walk.w + c;
    for (int64_t i = 0; i < walk.rows; ++i) {
      const float* w = w_row;
      const float* x[kThrees];
#pragma GCC unroll 8
      for (int t = 0; t < kThrees; ++t) x[t] = x_row + 3 * t * step;
      for (int64_t j = 0; j < walk.columns; ++j) {
        const F weight = load(w);
#pragma GCC unroll 8
        for (int p = 0; p < kCount; ++p) {
          acc[p] = V::Fma(load(x[p / 3] + p % 3 * step), weight, acc[p]);
        }
#pragma GCC unroll 8
        for (int t = 0; t < kThrees; ++t) x[t] += walk.x_column;
        w += walk.w_column;
      }
      x_row += walk.x_row;
      w_row += walk.w_row;
    }
#pragma GCC unroll 8
    for (int p = 0; p < kCount; ++p) store(p, acc[p]);
  }

  template <bool kMax>
  static void PoolPixel(const PoolArgs& a, const Taps& rows,
                        const Taps& columns, float divisor, float* y) {
    const Window& w = a.window;
    for (int64_t c = 0; c < a.x.channels; c += kLanes) {
      const int64_t live = a.x.channels - c;
      F acc = kMax ? V::Set(-__builtin_inff()) : V::Zero();
      for (int64_t i = rows.begin; i < rows.end; ++i) {
        const int64_t row = rows.start + i * w.dilation_h;
        for (int64_t j = columns.begin; j < columns.end; ++j) {
          const int64_t column = columns.start + j * w.dilation_w;
          const F x = V::LoadFirst(
              a.x.data + (row * a.x.ld_row + column * a.x.ld_pixel + c), live);
          if constexpr (kMax) {
            acc = V::Select(V::Equal(acc, acc), V::Max(acc, x), acc);
          } else {
            acc = V::Add(acc, x);
          }
        }
      }
      if constexpr (!kMax) acc = V::Div(acc, V::Set(divisor));
      V::StoreFirst(y + c, live, acc);
    }
  }
};

}  // namespace
}  // namespace millrace::models
