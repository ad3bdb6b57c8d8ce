// What products of f32 multiply: a step of a chain takes one word of 32 bits of
// x and one of w for each lane, here a float.
// Anonymous namespace: every instruction set compiles its own copy.
#pragma once

#include <cstdint>

namespace millrace::models {
namespace {

template <class Vector>
struct FloatFactors {
  using V = Vector;
  using E = float;  // of the rows that convolutions make of images
  static constexpr bool kRounds = false;
  static typename V::F MulAdd(typename V::F x, typename V::F w,
                              typename V::F acc) {
    return V::Fma(x, w, acc);
  }
  static void Copy(const float* from, int64_t n, float* to) {
    if (n < V::kLanes) return V::StoreFirst(to, n, V::LoadFirst(from, n));
    for (int64_t i = 0; i + V::kLanes <= n; i += V::kLanes) {
      V::Store(to + i, V::Load(from + i));
    }
    // The last ones, some of them twice.
    V::Store(to + n - V::kLanes, V::Load(from + n - V::kLanes));
  }
};

}  // namespace
}  // namespace millrace::models
