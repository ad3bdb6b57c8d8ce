// Pools and means over columns, with channels in the lanes, for any vector
// width. V is what scalar/vec1.h shows. Anonymous namespace.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/cpu/graph_kernels.h"
#include "models/cpu/kernels/dense/taps.h"

namespace millrace::models {
namespace {

template <class V>
class Windows {
 public:
  static void Pool(const PoolArgs& a) { PoolOf(a, a.x.data, a.y); }

  // Of images of T, which V loads and stores as vectors of floats.
  template <class T>
  static void PoolOf(const PoolArgs& a, const T* image, T* out) {
    const Window& w = a.window;
    for (int64_t row = a.row_begin; row < a.row_end; ++row) {
      const Taps rows = RowTaps(a.x, w, row);
      for (int64_t column = 0; column < a.out_width; ++column) {
        const Taps columns = ColumnTaps(a.x, w, column);
        T* y = out + (row * a.out_width + column) * a.ld_y;
        if (a.kind == PoolKind::kMax) {
          PoolPixel<true>(a, image, rows, columns, 1.0f, y);
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
        PoolPixel<false>(a, image, rows, columns,
                         static_cast<float>(count * across), y);
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

  // Taps in the image or its padding; the first ones always are.
  static int64_t Padded(const Taps& t, int64_t kernel, int64_t dilation,
                        int64_t size) {
    const int64_t room = (size - t.start + dilation - 1) / dilation;
    return room < kernel ? room : kernel;
  }

  template <bool kMax, class T>
  static void PoolPixel(const PoolArgs& a, const T* image, const Taps& rows,
                        const Taps& columns, float divisor, T* y) {
    const Window& w = a.window;
    for (int64_t c = 0; c < a.x.channels; c += kLanes) {
      const int64_t live = a.x.channels - c;
      F acc = kMax ? V::Set(-__builtin_inff()) : V::Zero();
      for (int64_t i = rows.begin; i < rows.end; ++i) {
        const int64_t row = rows.start + i * w.dilation_h;
        for (int64_t j = columns.begin; j < columns.end; ++j) {
          const int64_t column = columns.start + j * w.dilation_w;
          const F x = V::LoadFirst(
              image + (row * a.x.ld_row + column * a.x.ld_pixel + c), live);
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
