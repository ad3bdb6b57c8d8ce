// A key, value or query of one head as int8, in an anonymous namespace; the
// layout of an int8 page is written above AttendArgs in llm_kernels.h.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "models/cpu/kernels/avx2/vec8.h"
#include "models/cpu/llm_kernels.h"

namespace millrace::models {
namespace {

// The scales that follow the integers of an int8 page of 64 keys.
inline const float* ScalesOf(const void* page, int32_t head_dim) {
  return reinterpret_cast<const float*>(static_cast<const char*>(page) +
                                        int64_t{kPageKeys} * head_dim);
}

// out = round(x / d), returns d; head_dim is a multiple of 16.
inline float QuantizeHead(const float* x, int32_t head_dim, int8_t* out) {
  constexpr float kLeastNormal = 0x1p-126f;
  const __m256 sign = _mm256_set1_ps(-0.0f);
  __m256 greatest = _mm256_setzero_ps();
  for (int32_t i = 0; i < head_dim; i += 8) {
    greatest =
        _mm256_max_ps(_mm256_andnot_ps(sign, _mm256_loadu_ps(x + i)), greatest);
  }
  const float d = LaneMax8(greatest) / 127.0f;
  const bool zero = d < kLeastNormal;
  const __m256 inverse = _mm256_set1_ps(zero ? 0.0f : 1.0f / d);
  for (int32_t i = 0; i < head_dim; i += 16) {
    const __m256i a =
        _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + i), inverse));
    const __m256i b =
        _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + i + 8), inverse));
    const __m128i low = _mm_packs_epi32(_mm256_castsi256_si128(a),
                                        _mm256_extracti128_si256(a, 1));
    const __m128i high = _mm_packs_epi32(_mm256_castsi256_si128(b),
                                         _mm256_extracti128_si256(b, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i),
                     _mm_packs_epi16(low, high));
  }
  return zero ? 0.0f : d;
}

}  // namespace
}  // namespace millrace::models
