// The two row functions that show beside the matrices in a long prompt, sixteen
// values at a time: quantising and the activation.

#include "models/cpu/kernels/avx2/vec8.h"
#include "models/cpu/kernels/avx512vnni/parts.h"
#include "models/cpu/kernels/avx512vnni/vec16.h"

namespace millrace::models::avx512vnni {
namespace {

// Sums of bytes 0…15 and 16…31, as the two halves of a word, and of all.
int32_t SumHalves(__m256i q, int16_t* half) {
  const __m256i quads =
      _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), q);
  // [a0 a1 b0 b1] of both halves, then [a b] of both.
  __m128i s = _mm_hadd_epi32(_mm256_castsi256_si128(quads),
                             _mm256_extracti128_si256(quads, 1));
  s = _mm_hadd_epi32(s, s);
  const __m128i words = _mm_packs_epi32(s, s);
  _mm_storeu_si32(half, words);
  return _mm_cvtsi128_si32(_mm_madd_epi16(words, _mm_set1_epi16(1)));
}

}  // namespace

void QuantizeRow(const float* x, int64_t k, const Q8Row& out) {
  constexpr float kLeastNormal = 0x1p-126f;
  for (int64_t b = 0; b < k / 32; ++b, x += 32) {
    const __m512 v0 = _mm512_loadu_ps(x);
    const __m512 v1 = _mm512_loadu_ps(x + 16);
    const __m512 greatest = _mm512_max_ps(_mm512_abs_ps(v0), _mm512_abs_ps(v1));
    float d = LaneMax8(_mm256_max_ps(_mm512_castps512_ps256(greatest),
                                     _mm512_extractf32x8_ps(greatest, 1))) /
              127.0f;
    const bool zero = d < kLeastNormal;
    const __m512 inverse = _mm512_set1_ps(zero ? 0.0f : 1.0f / d);
    if (zero) d = 0.0f;
    const __m128i q0 =
        _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(v0, inverse)));
    const __m128i q1 =
        _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(v1, inverse)));
    const __m256i bytes = _mm256_set_m128i(q1, q0);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out.q + b * 32), bytes);
    const int32_t sum = SumHalves(bytes, out.half + 2 * b);
    out.d[b] = d;
    out.s[b] = d * static_cast<float>(sum);
    out.sum[b] = sum;
  }
}

void SiluMul(const float* gate, const float* up, int64_t n, float* out) {
  const __m512 one = _mm512_set1_ps(1.0f);
  const __m512 sign = _mm512_set1_ps(-0.0f);
  for (int64_t i = 0; i < n; i += 16) {
    const __mmask16 live = FirstLanes16(n - i);
    const __m512 g = _mm512_maskz_loadu_ps(live, gate + i);
    const __m512 e = Exp16(_mm512_xor_ps(g, sign));
    const __m512 t = _mm512_div_ps(one, _mm512_add_ps(one, e));
    const __m512 u = _mm512_maskz_loadu_ps(live, up + i);
    _mm512_mask_storeu_ps(out + i, live, _mm512_mul_ps(_mm512_mul_ps(g, t), u));
  }
}

}  // namespace millrace::models::avx512vnni
