// The commonest epilogues of sums that are still in registers: a bias, a
// residual before the function, and functions that are limits or nearly so. V
// is what scalar/vec1.h shows; one that loads bf16 adds residuals of that, too.
// Anonymous namespace.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/cpu/kernels/dense/math.h"

namespace millrace::models {
namespace {

template <class V>
class QuickEpilogue {
  using F = typename V::F;

 public:
  QuickEpilogue() = default;
  // Which lives as long.
  explicit QuickEpilogue(const Epilogue& e) : epilogue_(&e) {
    const bool adds = e.residual != nullptr || e.residual_bf16 != nullptr;
    takes_ = e.gate == nullptr &&
             (!adds || e.residual_first || e.f == Unary::kNone) &&
             (e.f == Unary::kNone || e.f == Unary::kRelu ||
              e.f == Unary::kClip || e.f == Unary::kHardSwish);
    if (e.f == Unary::kRelu) low_ = 0.0f;
    if (e.f != Unary::kClip) return;
    low_ = e.a;
    high_ = e.b;
  }

  // False: it is none of these.
  bool takes() const { return takes_; }

  // Of the sums of kR rows from `row` on and kNv vectors from output n0 on, for
  // which load(p) gives a vector of what there is at p.
  template <int kR, int kNv, class Load>
  [[gnu::always_inline]] void Apply(int64_t row, int64_t n0, Load load,
                                    F (&acc)[kR][kNv]) const {
    const Epilogue& e = *epilogue_;
    if (e.bias != nullptr) {
#pragma GCC unroll 16
      for (int v = 0; v < kNv; ++v) {
        const F bias = load(e.bias + n0 + v * V::kLanes);
#pragma GCC unroll 16
        for (int r = 0; r < kR; ++r) acc[r][v] = V::Add(acc[r][v], bias);
      }
    }
    if (e.residual != nullptr) {
      const float* from = e.residual + row * e.ld_residual + n0;
      Add(from, e.ld_residual, load, acc);
    }
    if constexpr (requires(const Bf16* p) { V::Load(p); }) {
      if (e.residual_bf16 != nullptr) {
        const Bf16* from = e.residual_bf16 + row * e.ld_residual + n0;
        Add(from, e.ld_residual, load, acc);
      }
    }
    if (e.f == Unary::kHardSwish) {
      return Each(acc, [](F x) { return Math<V>::HardSwish(x); });
    }
    // -infinity and infinity change nothing.
    const F low = V::Set(low_);
    const F high = V::Set(high_);
    Each(acc, [=](F x) { return V::Min(high, V::Max(low, x)); });
  }

 private:
  template <int kR, int kNv, class T, class Load>
  [[gnu::always_inline]] static void Add(const T* from, int64_t ld, Load load,
                                         F (&acc)[kR][kNv]) {
#pragma GCC unroll 16
    for (int r = 0; r < kR; ++r, from += ld) {
#pragma GCC unroll 16
      for (int v = 0; v < kNv; ++v) {
        acc[r][v] = V::Add(acc[r][v], load(from + v * V::kLanes));
      }
    }
  }
  template <int kR, int kNv, class Function>
  [[gnu::always_inline]] static void Each(F (&acc)[kR][kNv], Function f) {
#pragma GCC unroll 16
    for (int r = 0; r < kR; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < kNv; ++v) acc[r][v] = f(acc[r][v]);
    }
  }

  const Epilogue* epilogue_ = nullptr;
  bool takes_ = false;
  float low_ = -__builtin_inff();
  float high_ = __builtin_inff();
};

}  // namespace
}  // namespace millrace::models
