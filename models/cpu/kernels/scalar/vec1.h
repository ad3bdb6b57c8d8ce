// One float as a vector of one lane, for the bodies that are written for any
// width: what the wide ones must give, bit for bit. Anonymous namespace.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/cpu/kernels/scalar/numbers.h"

namespace millrace::models {
namespace {

struct Vec1 {
  using F = float;
  using I = uint32_t;
  using Mask = bool;
  static constexpr int kLanes = 1;

  static F Zero() { return 0.0f; }
  static F Set(float x) { return x; }
  static F Load(const float* p) { return *p; }
  static void Store(float* p, F x) { *p = x; }
  static F LoadFirst(const float* p, int64_t n) { return n > 0 ? *p : 0.0f; }
  static void StoreFirst(float* p, int64_t n, F x) {
    if (n > 0) *p = x;
  }
  static Mask First(int64_t n) { return n > 0; }

  static F Add(F a, F b) { return a + b; }
  static F Sub(F a, F b) { return a - b; }
  static F Mul(F a, F b) { return a * b; }
  static F Div(F a, F b) { return a / b; }
  static F Fma(F a, F b, F c) { return models::Fma(a, b, c); }
  static F Max(F a, F b) { return a > b ? a : b; }
  static F Min(F a, F b) { return a < b ? a : b; }
  static F Sqrt(F x) { return __builtin_sqrtf(x); }
  static F Floor(F x) { return __builtin_floorf(x); }
  static F Ceil(F x) { return __builtin_ceilf(x); }
  static F Round(F x) { return __builtin_rintf(x); }  // to nearest even

  static float FirstLane(F x) { return x; }
  // Lane j is lane j + kBy, for j below kBy; the wider ones have it.
  template <int kBy>
  static F Down(F x) {
    return x;
  }
  static Mask Less(F a, F b) { return a < b; }
  static Mask Equal(F a, F b) { return a == b; }
  static F Select(Mask m, F x, F y) { return m ? x : y; }

  static I Bits(F x) { return BitsOfFloat(x); }
  static F OfBits(I x) { return FloatOfBits(x); }
  static I SetBits(uint32_t x) { return x; }
  static I And(I a, I b) { return a & b; }
  static I Xor(I a, I b) { return a ^ b; }
  static I AddInts(I a, I b) { return a + b; }
  static I SubInts(I a, I b) { return a - b; }
  template <int kBits>
  static I Left(I x) {
    return x << kBits;
  }
  template <int kBits>
  static I RightSigned(I x) {
    return static_cast<uint32_t>(static_cast<int32_t>(x) >> kBits);
  }
  static F ToFloat(I x) { return static_cast<float>(static_cast<int32_t>(x)); }
  // p * 2^n for a whole n of -152…129, rounded once. In two factors: the first
  // product is exact.
  static F Scale(F p, F n) {
    const int32_t whole = RoundToInt(n);
    const int32_t half = whole >> 1;
    const auto power = [](int32_t e) {
      return FloatOfBits(static_cast<uint32_t>(e + 127) << 23);
    };
    return p * power(half) * power(whole - half);
  }
};

}  // namespace
}  // namespace millrace::models
