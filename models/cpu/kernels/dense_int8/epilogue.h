// What happens to finished integer sums, for vectors of any width. Anonymous
// namespace. S is what kernels/dense_int8/gemm.h says.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/cpu/graph_int8_kernels.h"
#include "models/cpu/kernels/dense/math.h"

namespace millrace::models {
namespace {

inline int64_t SmallerOf(int64_t a, int64_t b) { return a < b ? a : b; }

// The same epilogue from another row and output on.
inline Int8Epilogue From(const Int8Epilogue& e, int64_t row, int64_t output) {
  Int8Epilogue moved = e;
  moved.offset += output;
  moved.scale += output;
  if (e.bias != nullptr) moved.bias += output;
  if (e.middle_bias != nullptr) moved.middle_bias += output;
  const int64_t at = row * e.ld_residual + output;
  if (e.residual != nullptr) moved.residual += at;
  if (e.residual_f32 != nullptr) moved.residual_f32 += at;
  return moved;
}

// Where results go: one of the two.
struct Int8Out {
  uint8_t* bytes = nullptr;
  float* floats = nullptr;
  int64_t ld = 0;

  Int8Out At(int64_t row, int64_t output) const {
    Int8Out moved = *this;
    const int64_t at = row * ld + output;
    if (bytes != nullptr) moved.bytes += at;
    if (floats != nullptr) moved.floats += at;
    return moved;
  }
};

// The limits of a result in bytes before its zero point is added. They may say
// what f says, too: where it only cuts.
struct ByteLimits {
  explicit ByteLimits(const Int8Epilogue& e)
      : low(static_cast<float>(-e.y_zero)),
        high(static_cast<float>(255 - e.y_zero)) {
    const bool cuts = e.f == Unary::kRelu || e.f == Unary::kClip;
    cover_f =
        e.f == Unary::kNone ||
        (cuts && e.y_scale == 1 && (e.residual == nullptr || e.residual_first));
    if (e.f == Unary::kRelu && low < 0) low = 0;
    if (e.f == Unary::kClip) {
      // As the limits of a byte come last, they win where both do not meet.
      const float least = low;
      low = e.a > low ? (e.a < high ? e.a : high) : low;
      high = e.b < high ? (e.b > least ? e.b : least) : high;
      if (high < low) low = high;
    }
  }

  float low;
  float high;
  bool cover_f;
};

template <class S>
class Int8Finish {
 public:
  using V = typename S::V;
  using F = typename V::F;
  using I = typename V::I;
  static constexpr int kLanes = V::kLanes;

  // out[rows][n] from sums[rows][ld_sums]; the epilogue and `out` stand at row
  // 0, output 0.
  static void Run(const int32_t* sums, int64_t ld_sums, int64_t rows, int64_t n,
                  const Int8Epilogue& e, const Int8Out& out) {
    const bool plain = e.middle_scale == 0 && e.residual == nullptr &&
                       e.residual_f32 == nullptr;
    Math<V>::With(e.f, e.a, e.b, [&](auto f) {
      if (plain) {
        Rows<true>(sums, ld_sums, rows, n, e, out, f);
      } else {
        Rows<false>(sums, ld_sums, rows, n, e, out, f);
      }
    });
  }

  // v * y_scale within the limits of a byte.
  static F Limited(F v, F y_scale, F low, F high) {
    return V::Min(V::Max(V::Mul(v, y_scale), low), high);
  }

 private:
  template <bool kPlain, class Function>
  static void Rows(const int32_t* sums, int64_t ld_sums, int64_t rows,
                   int64_t n, const Int8Epilogue& e, const Int8Out& out,
                   Function f) {
    const F y_scale = V::Set(e.y_scale);
    const F low = V::Set(static_cast<float>(-e.y_zero));
    const F high = V::Set(static_cast<float>(255 - e.y_zero));
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < n; c += kLanes) {
        const int64_t live = n - c;
        const I sum = V::AddInts(S::LoadInts(sums + r * ld_sums + c, live),
                                 S::LoadInts(e.offset + c, live));
        F v = V::Mul(V::ToFloat(sum), V::LoadFirst(e.scale + c, live));
        if (e.bias != nullptr) {
          v = V::Fma(V::ToFloat(sum), V::LoadFirst(e.scale + c, live),
                     V::LoadFirst(e.bias + c, live));
        }
        if constexpr (!kPlain) {
          if (e.middle_scale != 0) {
            v = V::Min(V::Set(e.middle_high),
                       V::Max(V::Round(v), V::Set(e.middle_low)));
            v = V::Fma(v, V::Set(e.middle_scale),
                       e.middle_bias != nullptr
                           ? V::LoadFirst(e.middle_bias + c, live)
                           : V::Zero());
          }
          if (e.residual_first) v = WithResidual(v, e, r, c, live);
        }
        v = f(v);
        if constexpr (!kPlain) {
          if (!e.residual_first) v = WithResidual(v, e, r, c, live);
        }
        if (out.floats != nullptr) {
          V::StoreFirst(out.floats + r * out.ld + c, live, v);
        } else {
          S::StoreBytes(out.bytes + r * out.ld + c, live,
                        Limited(v, y_scale, low, high), e.y_zero);
        }
      }
      if (e.lookup != nullptr && out.bytes != nullptr) {
        uint8_t* y = out.bytes + r * out.ld;
        S::Lookup(e.lookup, y, n, y);
      }
    }
  }

  static F WithResidual(F v, const Int8Epilogue& e, int64_t r, int64_t c,
                        int64_t live) {
    if (e.residual != nullptr) {
      const F x = V::Sub(S::LoadBytes(e.residual + r * e.ld_residual + c, live),
                         V::Set(e.residual_zero));
      return V::Fma(x, V::Set(e.residual_scale), v);
    }
    if (e.residual_f32 != nullptr) {
      return V::Fma(V::LoadFirst(e.residual_f32 + r * e.ld_residual + c, live),
                    V::Set(e.residual_scale), v);
    }
    return v;
  }
};

}  // namespace
}  // namespace millrace::models
