// Sixteen floats as the bodies under kernels/dense want them: compare
// scalar/vec1.h, which says what each must give. Anonymous namespace.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace millrace::models {
namespace {

struct Vec16 {
  using F = __m512;
  using I = __m512i;
  using Mask = __mmask16;
  static constexpr int kLanes = 16;

  static F Zero() { return _mm512_setzero_ps(); }
  static F Set(float x) { return _mm512_set1_ps(x); }
  static F Load(const float* p) { return _mm512_loadu_ps(p); }
  static void Store(float* p, F x) { _mm512_storeu_ps(p, x); }
  static F LoadFirst(const float* p, int64_t n) {
    return _mm512_maskz_loadu_ps(First(n), p);
  }
  static void StoreFirst(float* p, int64_t n, F x) {
    _mm512_mask_storeu_ps(p, First(n), x);
  }
  static Mask First(int64_t n) {
    if (n >= kLanes) return 0xffff;
    return n <= 0 ? 0 : static_cast<Mask>((1u << n) - 1);
  }

  static F Add(F a, F b) { return _mm512_add_ps(a, b); }
  static F Sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F Mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F Div(F a, F b) { return _mm512_div_ps(a, b); }
  static F Fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F Max(F a, F b) { return _mm512_max_ps(a, b); }
  static F Min(F a, F b) { return _mm512_min_ps(a, b); }
  static F Sqrt(F x) { return _mm512_sqrt_ps(x); }
  static F Floor(F x) { return _mm512_roundscale_ps(x, kDown); }
  static F Ceil(F x) { return _mm512_roundscale_ps(x, kUp); }
  static F Round(F x) { return _mm512_roundscale_ps(x, kNearest); }

  static float FirstLane(F x) { return _mm512_cvtss_f32(x); }
  template <int kBy>
  static F Down(F x) {
    if constexpr (kBy >= 4) {
      return _mm512_shuffle_f32x4(x, x, kBy == 8 ? 0x4e : 0xb1);
    }
    return _mm512_permute_ps(x, kBy == 2 ? 0x4e : 0xb1);
  }
  static Mask Less(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
  static Mask Equal(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
  static F Select(Mask m, F x, F y) { return _mm512_mask_blend_ps(m, y, x); }

  static I Bits(F x) { return _mm512_castps_si512(x); }
  static F OfBits(I x) { return _mm512_castsi512_ps(x); }
  static I SetBits(uint32_t x) {
    return _mm512_set1_epi32(static_cast<int32_t>(x));
  }
  static I And(I a, I b) { return _mm512_and_si512(a, b); }
  static I Xor(I a, I b) { return _mm512_xor_si512(a, b); }
  static I AddInts(I a, I b) { return _mm512_add_epi32(a, b); }
  static I SubInts(I a, I b) { return _mm512_sub_epi32(a, b); }
  template <int kBits>
  static I Left(I x) {
    return _mm512_slli_epi32(x, kBits);
  }
  template <int kBits>
  static I RightSigned(I x) {
    return _mm512_srai_epi32(x, kBits);
  }
  static F ToFloat(I x) { return _mm512_cvtepi32_ps(x); }
  static F Scale(F p, F n) { return _mm512_scalef_ps(p, n); }

 private:
  static constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  static constexpr int kDown = _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC;
  static constexpr int kUp = _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC;
};

}  // namespace
}  // namespace millrace::models
