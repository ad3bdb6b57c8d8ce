// Depthwise convolutions and pools of bytes, and what is done to whole arrays,
// for any vector width. Anonymous namespace. S is what
// kernels/dense_int8/gemm.h says.
//
// Sums of a depthwise convolution are whole numbers in floats, exact below
// 2^24: every order of them gives the same.
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

  static void Depthwise(const Int8DepthwiseArgs& a) {
    const Window& w = a.window;
    for (int64_t row = a.row_begin; row < a.row_end; ++row) {
      const int64_t top = row * w.stride_h - w.pad_top;
      for (int64_t column = 0; column < a.out_width;) {
        const int64_t left = column * w.stride_w - w.pad_left;
        // Pixels whose windows all lie inside go together.
        int64_t count = 1;
        if (Inside(a, top, left)) {
          while (count < kPixels && column + count < a.out_width &&
                 Inside(a, top, left + count * w.stride_w)) {
            ++count;
          }
          if (count < kPixels) count = count >= 2 ? 2 : 1;
        }
        const int64_t pixel = row * a.out_width + column;
        if (!Inside(a, top, left)) {
          Chunks<1, false>(a, top, left, pixel);
        } else if (count == kPixels) {
          Chunks<kPixels, true>(a, top, left, pixel);
        } else if (count == 2) {
          Chunks<2, true>(a, top, left, pixel);
        } else {
          Chunks<1, true>(a, top, left, pixel);
        }
        column += count;
      }
    }
  }

  static void MaxPool(const Int8PoolArgs& a) {
    const Window& w = a.window;
    const ByteImage& x = a.x;
    constexpr int64_t kBytes = S::kRawBytes;
    for (int64_t row = a.row_begin; row < a.row_end; ++row) {
      for (int64_t column = 0; column < a.out_width; ++column) {
        uint8_t* y = a.y + (row * a.out_width + column) * a.ld_y;
        for (int64_t c = 0; c < x.channels; c += kBytes) {
          const int64_t live = SmallerOf(x.channels - c, kBytes);
          auto best = S::ZeroRaw();
          for (int64_t i = 0; i < w.kernel_h; ++i) {
            const int64_t h = row * w.stride_h - w.pad_top + i * w.dilation_h;
            if (h < 0 || h >= x.height) continue;
            for (int64_t j = 0; j < w.kernel_w; ++j) {
              const int64_t v =
                  column * w.stride_w - w.pad_left + j * w.dilation_w;
              if (v < 0 || v >= x.width) continue;
              best = S::Greater(
                  best,
                  S::LoadRaw(x.data + h * x.ld_row + v * x.ld_pixel + c, live));
            }
          }
          S::StoreRaw(y + c, live, best);
        }
      }
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
  static constexpr int kPixels = 6;
  static constexpr int64_t kChunk = 64;  // channels whose sums wait

  static bool Inside(const Int8DepthwiseArgs& a, int64_t top, int64_t left) {
    const Window& w = a.window;
    return top >= 0 && top + (w.kernel_h - 1) * w.dilation_h < a.x.height &&
           left >= 0 && left + (w.kernel_w - 1) * w.dilation_w < a.x.width;
  }

  // kCount neighbouring pixels, all channels.
  template <int kCount, bool kInside>
  static void Chunks(const Int8DepthwiseArgs& a, int64_t top, int64_t left,
                     int64_t pixel) {
    const int64_t channels = a.x.channels;
    const Int8Out out{a.y, a.y_f32, a.ld_y};
    alignas(64) int32_t sums[kCount * kChunk];
    for (int64_t c0 = 0; c0 < channels; c0 += kChunk) {
      const int64_t n = SmallerOf(kChunk, channels - c0);
      for (int64_t c = 0; c < n; c += kLanes) {
        Sums<kCount, kInside>(a, top, left, c0 + c, sums + c);
      }
      Int8Finish<S>::Run(sums, kChunk, kCount, n, From(a.epilogue, pixel, c0),
                         out.At(pixel, c0));
    }
  }

  template <int kCount, bool kInside>
  static void Sums(const Int8DepthwiseArgs& a, int64_t top, int64_t left,
                   int64_t c, int32_t* sums) {
    const Window& w = a.window;
    const ByteImage& x = a.x;
    const int64_t live = x.channels - c;
    const int64_t step = w.stride_w * x.ld_pixel;
    F acc[kCount];
#pragma GCC unroll 8
    for (int p = 0; p < kCount; ++p) acc[p] = V::Zero();
    for (int64_t i = 0; i < w.kernel_h; ++i) {
      const int64_t row = top + i * w.dilation_h;
      for (int64_t j = 0; j < w.kernel_w; ++j) {
        const int64_t column = left + j * w.dilation_w;
        const F weight =
            V::LoadFirst(a.w + (i * w.kernel_w + j) * x.channels + c, live);
        if (!kInside &&
            (row < 0 || row >= x.height || column < 0 || column >= x.width)) {
          acc[0] = V::Fma(V::Set(static_cast<float>(x.zero)), weight, acc[0]);
          continue;
        }
        const uint8_t* from = x.data + row * x.ld_row + column * x.ld_pixel + c;
#pragma GCC unroll 8
        for (int p = 0; p < kCount; ++p) {
          acc[p] = V::Fma(S::LoadBytes(from + p * step, live), weight, acc[p]);
        }
      }
    }
#pragma GCC unroll 8
    for (int p = 0; p < kCount; ++p) {
      S::StoreInts(sums + p * kChunk, S::ToInts(acc[p]));
    }
  }
};

}  // namespace
}  // namespace millrace::models
