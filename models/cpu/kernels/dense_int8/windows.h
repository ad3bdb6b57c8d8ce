// Pools of bytes, and what is done to whole arrays, for any vector width.
// Anonymous namespace. S is what kernels/dense_int8/gemm.h says.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/cpu/kernels/dense_int8/gemm.h"

namespace millrace::models {
namespace {

template <class S>
class Int8Windows {
 public:
  using V = typename S::V;
  using F = typename V::F;
  static constexpr int kLanes = V::kLanes;

  static void MaxPool(const Int8PoolArgs& a) {
    const Window& w = a.window;
    const ByteImage& x = a.x;
    constexpr int64_t kBytes = S::kRawBytes;
    for (int64_t row = a.row_begin; row < a.row_end; ++row) {
      const int64_t top = row * w.stride_h - w.pad_top;
      const Taps down(top, w.kernel_h, w.dilation_h, x.height);
      for (int64_t column = 0; column < a.out_width; ++column) {
        const int64_t left = column * w.stride_w - w.pad_left;
        const Taps along(left, w.kernel_w, w.dilation_w, x.width);
        const uint8_t* from = x.data +
                              (top + down.begin * w.dilation_h) * x.ld_row +
                              (left + along.begin * w.dilation_w) * x.ld_pixel;
        uint8_t* y = a.y + (row * a.out_width + column) * a.ld_y;
        for (int64_t c = 0; c < x.channels; c += kBytes) {
          const int64_t live = SmallerOf(x.channels - c, kBytes);
          auto best = S::ZeroRaw();
          const uint8_t* line = from + c;
          for (int64_t i = down.begin; i < down.end; ++i) {
            const uint8_t* tap = line;
            for (int64_t j = along.begin; j < along.end; ++j) {
              best = S::Greater(best, S::LoadRaw(tap, live));
              tap += w.dilation_w * x.ld_pixel;
            }
            line += w.dilation_h * x.ld_row;
          }
          S::StoreRaw(y + c, live, best);
        }
      }
    }
  }

  static void Affine(const Int8AffineArgs& a) {
    const auto most = static_cast<float>(255 - a.zero);
    const auto least = static_cast<float>(-a.zero);
    const F low = V::Set(a.low < least ? least : a.low < most ? a.low : most);
    const F high = V::Set(a.high > most    ? most
                          : a.high > least ? a.high
                                           : least);
    for (int64_t r = 0; r < a.rows; ++r) {
      const uint8_t* x = a.x + r * a.n;
      uint8_t* y = a.y + r * a.n;
      for (int64_t c = 0; c < a.n; c += 2 * kLanes) {
        typename S::I q[2];
#pragma GCC unroll 2
        for (int i = 0; i < 2; ++i) {
          const int64_t at = c + i * kLanes;
          const F v = V::Fma(S::LoadBytes(x + at, a.n - at),
                             V::LoadFirst(a.scale + at, a.n - at),
                             V::LoadFirst(a.bias + at, a.n - at));
          q[i] = S::ToInts(V::Min(high, V::Max(v, low)));
        }
        S::StoreHalf(y + c, a.n - c, S::PackHalf(q[0], q[1], a.zero));
      }
    }
  }

  static void Mix(const Int8MixArgs& a) {
    const F low = V::Set(static_cast<float>(-a.y_zero));
    const F high = V::Set(static_cast<float>(255 - a.y_zero));
    const F less = V::Set(static_cast<float>(a.x_zero));
    const F scale = V::Set(a.scale);
    for (int64_t i = 0; i < a.n; i += kLanes) {
      F v = V::Zero();
      for (int64_t j = 0; j < a.count; ++j) {
        v = V::Fma(V::Sub(S::LoadBytes(a.from[j] + i, a.n - i), less),
                   V::Set(a.weight[j]), v);
      }
      S::StoreBytes(a.y + i, a.n - i,
                    Int8Finish<S>::Limited(v, scale, low, high), a.y_zero);
    }
  }

  static void Quantise(const float* x, int64_t n, float scale, int32_t zero,
                       uint8_t* y) {
    const F low = V::Set(static_cast<float>(-zero));
    const F high = V::Set(static_cast<float>(255 - zero));
    const F by = V::Set(scale);
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      S::StoreBytes(y + i, kLanes,
                    Int8Finish<S>::Limited(V::Load(x + i), by, low, high),
                    zero);
    }
    if (i == n) return;
    const F v = V::LoadFirst(x + i, n - i);
    S::StoreBytes(y + i, n - i, Int8Finish<S>::Limited(v, by, low, high), zero);
  }

  static void Dequantise(const uint8_t* x, int64_t n, float scale, int32_t zero,
                         float* y) {
    const F less = V::Set(static_cast<float>(zero));
    const F by = V::Set(scale);
    for (int64_t i = 0; i < n; i += kLanes) {
      const F v = V::Sub(S::LoadBytes(x + i, n - i), less);
      V::StoreFirst(y + i, n - i, V::Mul(v, by));
    }
  }

  static void ColumnSums(const uint8_t* x, int64_t rows, int64_t n, int64_t ld,
                         int32_t* sums) {
    for (int64_t c = 0; c < n; c += kLanes) {
      int64_t r = 0;
      int32_t lanes[kLanes] = {};
      while (r < rows) {
        // Exact in floats for so many.
        const int64_t end = SmallerOf(rows, r + 65536);
        F sum = V::Zero();
        for (; r < end; ++r) {
          sum = V::Add(sum, S::LoadBytes(x + r * ld + c, n - c));
        }
        float part[kLanes];
        V::Store(part, sum);
        for (int j = 0; j < kLanes; ++j) {
          lanes[j] += static_cast<int32_t>(part[j]);
        }
      }
      for (int64_t j = 0; j < SmallerOf(n - c, kLanes); ++j) {
        sums[c + j] = lanes[j];
      }
    }
  }

 private:
  // The taps of a window on one axis that lie in the image.
  struct Taps {
    Taps(int64_t first, int64_t kernel, int64_t dilation, int64_t size)
        : end(kernel) {
      while (begin < end && first + begin * dilation < 0) ++begin;
      while (begin < end && first + (end - 1) * dilation >= size) --end;
    }
    int64_t begin = 0;
    int64_t end;
  };
};

}  // namespace
}  // namespace millrace::models
