// Sixteen floats at a time: what the AVX-512 files share, in an anonymous
// namespace. The chains are those of llm_kernels.h; compare scalar/numbers.h.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace millrace::models {
namespace {

inline __m512 Exp16(__m512 x) {
  const __m512 rounder = _mm512_set1_ps(12582912.0f);
  const __mmask16 keep =
      _mm512_cmp_ps_mask(x, _mm512_set1_ps(-87.33654f), _CMP_NLT_UQ);
  x = _mm512_min_ps(_mm512_set1_ps(88.37626f), x);  // a NaN stays
  const __m512 shifted =
      _mm512_add_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), rounder);
  const __m512 n = _mm512_sub_ps(shifted, rounder);
  __m512 r = _mm512_fmadd_ps(n, _mm512_set1_ps(-0.693359375f), x);
  r = _mm512_fmadd_ps(n, _mm512_set1_ps(2.12194440e-4f), r);
  __m512 p = _mm512_set1_ps(1.9875691500e-4f);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.3981999507e-3f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(8.3334519073e-3f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(4.1665795894e-2f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.6666665459e-1f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.0000001201e-1f));
  p = _mm512_fmadd_ps(p, _mm512_mul_ps(r, r), r);
  p = _mm512_add_ps(p, _mm512_set1_ps(1.0f));
  const __m512i power = _mm512_slli_epi32(_mm512_castps_si512(shifted), 23);
  return _mm512_castsi512_ps(
      _mm512_maskz_add_epi32(keep, _mm512_castps_si512(p), power));
}

// Lanes 0…count-1; count may be above 16 but not below 0.
inline __mmask16 FirstLanes16(int64_t count) {
  return count >= 16 ? 0xffff : static_cast<__mmask16>((1u << count) - 1);
}

}  // namespace
}  // namespace millrace::models
