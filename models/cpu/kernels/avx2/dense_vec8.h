// Eight floats as the bodies under kernels/dense want them: compare
// scalar/vec1.h, which says what each must give. Anonymous namespace.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "models/cpu/kernels/avx2/vec8.h"

namespace millrace::models {
namespace {

struct Vec8 {
  using F = __m256;
  using I = __m256i;
  using Mask = __m256;
  static constexpr int kLanes = 8;

  static F Zero() { return _mm256_setzero_ps(); }
  static F Set(float x) { return _mm256_set1_ps(x); }
  static F Load(const float* p) { return _mm256_loadu_ps(p); }
  static void Store(float* p, F x) { _mm256_storeu_ps(p, x); }
  static F LoadFirst(const float* p, int64_t n) {
    return n >= kLanes ? Load(p) : _mm256_maskload_ps(p, FirstLanes(Below(n)));
  }
  static void StoreFirst(float* p, int64_t n, F x) {
    if (n >= kLanes) {
      Store(p, x);
    } else {
      _mm256_maskstore_ps(p, FirstLanes(Below(n)), x);
    }
  }
  static Mask First(int64_t n) {
    return _mm256_castsi256_ps(FirstLanes(Below(n)));
  }

  static F Add(F a, F b) { return _mm256_add_ps(a, b); }
  static F Sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F Mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F Div(F a, F b) { return _mm256_div_ps(a, b); }
  static F Fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F Max(F a, F b) { return _mm256_max_ps(a, b); }
  static F Min(F a, F b) { return _mm256_min_ps(a, b); }
  static F Sqrt(F x) { return _mm256_sqrt_ps(x); }
  static F Floor(F x) { return _mm256_floor_ps(x); }
  static F Ceil(F x) { return _mm256_ceil_ps(x); }
  static F Round(F x) {
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }

  static float FirstLane(F x) { return _mm256_cvtss_f32(x); }
  template <int kBy>
  static F Down(F x) {
    if constexpr (kBy == 4) return _mm256_permute2f128_ps(x, x, 1);
    return _mm256_permute_ps(x, kBy == 2 ? 0x4e : 0xb1);
  }
  static Mask Less(F a, F b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
  static Mask Equal(F a, F b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
  static F Select(Mask m, F x, F y) { return _mm256_blendv_ps(y, x, m); }

  static I Bits(F x) { return _mm256_castps_si256(x); }
  static F OfBits(I x) { return _mm256_castsi256_ps(x); }
  static I SetBits(uint32_t x) {
    return _mm256_set1_epi32(static_cast<int32_t>(x));
  }
  static I And(I a, I b) { return _mm256_and_si256(a, b); }
  static I Xor(I a, I b) { return _mm256_xor_si256(a, b); }
  static I AddInts(I a, I b) { return _mm256_add_epi32(a, b); }
  static I SubInts(I a, I b) { return _mm256_sub_epi32(a, b); }
  template <int kBits>
  static I Left(I x) {
    return _mm256_slli_epi32(x, kBits);
  }
  template <int kBits>
  static I RightSigned(I x) {
    return _mm256_srai_epi32(x, kBits);
  }
  static F ToFloat(I x) { return _mm256_cvtepi32_ps(x); }
  static F Scale(F p, F n) {
    const I whole = _mm256_cvtps_epi32(n);
    const I half = RightSigned<1>(whole);
    return Mul(Mul(p, Power(half)), Power(SubInts(whole, half)));
  }

 private:
  static F Power(I e) { return OfBits(Left<23>(AddInts(e, SetBits(127)))); }
  static int64_t Below(int64_t n) { return n < 0 ? 0 : n; }
};

}  // namespace
}  // namespace millrace::models
