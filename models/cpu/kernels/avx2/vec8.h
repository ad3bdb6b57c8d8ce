// Eight floats at a time: what the AVX2 files share, in an anonymous namespace.
// The chains are those of llm_kernels.h; compare scalar/numbers.h.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace millrace::models {
namespace {

inline __m256 Exp8(__m256 x) {
  const __m256 rounder = _mm256_set1_ps(12582912.0f);
  const __m256 below = _mm256_cmp_ps(x, _mm256_set1_ps(-87.33654f), _CMP_LT_OQ);
  x = _mm256_min_ps(_mm256_set1_ps(88.37626f), x);  // a NaN stays
  const __m256 shifted =
      _mm256_add_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504f)), rounder);
  const __m256 n = _mm256_sub_ps(shifted, rounder);
  __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-0.693359375f), x);
  r = _mm256_fmadd_ps(n, _mm256_set1_ps(2.12194440e-4f), r);
  __m256 p = _mm256_set1_ps(1.9875691500e-4f);
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.3981999507e-3f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(8.3334519073e-3f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(4.1665795894e-2f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.6666665459e-1f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(5.0000001201e-1f));
  p = _mm256_fmadd_ps(p, _mm256_mul_ps(r, r), r);
  p = _mm256_add_ps(p, _mm256_set1_ps(1.0f));
  const __m256i power = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23);
  p = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), power));
  return _mm256_andnot_ps(below, p);
}

// All ones in lanes 0…count-1; count may be above 8 or below 0.
inline __m256i FirstLanes(int64_t count) {
  const int clipped = count > 8 ? 8 : static_cast<int>(count);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(clipped),
                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

inline float LaneSum8(__m256 v) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

inline float LaneMax8(__m256 v) {
  __m128 s = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  s = _mm_max_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

// Walks an array in eights; the last step may be partial, its missing lanes
// load as 0 and are not stored.
//   for (Chunks8 c(n); c.More(); c.Next()) c.Store(y, c.Load(x));
struct Chunks8 {
  explicit Chunks8(int64_t count) : n(count) {}
  bool More() const { return at < n; }
  void Next() { at += 8; }
  bool Whole() const { return at + 8 <= n; }
  __m256i Mask() const { return FirstLanes(n - at); }
  __m256 Load(const float* x) const {
    return Whole() ? _mm256_loadu_ps(x + at)
                   : _mm256_maskload_ps(x + at, Mask());
  }
  void Store(float* x, __m256 v) const {
    if (Whole()) {
      _mm256_storeu_ps(x + at, v);
    } else {
      _mm256_maskstore_ps(x + at, Mask(), v);
    }
  }

  int64_t n;
  int64_t at = 0;
};

}  // namespace
}  // namespace millrace::models
