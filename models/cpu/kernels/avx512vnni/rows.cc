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

constexpr float kLeastNormal = 0x1p-126f;

// Greatest of the eight values in each of eight vectors.
__m256 GreatestOfEach(const __m256 (&v)[8]) {
  __m256 fours[2];
  for (int i = 0; i < 2; ++i) {
    const __m256* p = v + 4 * i;
    const __m256 ab = _mm256_max_ps(_mm256_unpacklo_ps(p[0], p[1]),
                                    _mm256_unpackhi_ps(p[0], p[1]));
    const __m256 cd = _mm256_max_ps(_mm256_unpacklo_ps(p[2], p[3]),
                                    _mm256_unpackhi_ps(p[2], p[3]));
    fours[i] = _mm256_max_ps(_mm256_shuffle_ps(ab, cd, 0x44),
                             _mm256_shuffle_ps(ab, cd, 0xee));
  }
  return _mm256_max_ps(_mm256_permute2f128_ps(fours[0], fours[1], 0x20),
                       _mm256_permute2f128_ps(fours[0], fours[1], 0x31));
}

// Sums of the four words in each 128 bits of four vectors: those of part j of
// vector i at 4 * j + i.
__m512i SumsOfFours(const __m512i (&v)[4]) {
  const __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(v[0], v[1]),
                                      _mm512_unpackhi_epi32(v[0], v[1]));
  const __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(v[2], v[3]),
                                      _mm512_unpackhi_epi32(v[2], v[3]));
  return _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd),
                          _mm512_unpackhi_epi64(ab, cd));
}

// Eight blocks, from block b on: what each has one of is computed for all at
// once.
void QuantizeEight(const float* x, int64_t b, const Q8Row& out) {
  x += b * 32;
  __m256 greatest[8];
  for (int i = 0; i < 8; ++i) {
    const __m512 v =
        _mm512_max_ps(_mm512_abs_ps(_mm512_loadu_ps(x + 32 * i)),
                      _mm512_abs_ps(_mm512_loadu_ps(x + 32 * i + 16)));
    greatest[i] =
        _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  }
  __m256 d = _mm256_div_ps(GreatestOfEach(greatest), _mm256_set1_ps(127.0f));
  const __mmask8 live =
      _mm256_cmp_ps_mask(d, _mm256_set1_ps(kLeastNormal), _CMP_NLT_UQ);
  alignas(32) float inverse[8];
  _mm256_store_ps(inverse, _mm256_maskz_div_ps(live, _mm256_set1_ps(1.0f), d));
  d = _mm256_maskz_mov_ps(live, d);

  // A 4 x 4 matrix of words, turned.
  const __m512i turn =
      _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  __m512i quads[4];
  for (int i = 0; i < 4; ++i) {
    __m512i q[4];
    for (int j = 0; j < 4; ++j) {
      q[j] = _mm512_cvtps_epi32(
          _mm512_mul_ps(_mm512_loadu_ps(x + 64 * i + 16 * j),
                        _mm512_set1_ps(inverse[2 * i + j / 2])));
    }
    // The packs work in 128 bits each.
    const __m512i bytes = _mm512_permutexvar_epi32(
        turn, _mm512_packs_epi16(_mm512_packs_epi32(q[0], q[1]),
                                 _mm512_packs_epi32(q[2], q[3])));
    _mm512_storeu_si512(out.q + b * 32 + 64 * i, bytes);
    quads[i] =
        _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), bytes);
  }
  const __m512i halves = _mm512_permutexvar_epi32(turn, SumsOfFours(quads));
  const __m256i sum = _mm512_cvtepi64_epi32(
      _mm512_add_epi32(halves, _mm512_srli_epi64(halves, 32)));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out.half + 2 * b),
                      _mm512_cvtepi32_epi16(halves));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out.sum + b), sum);
  _mm256_storeu_ps(out.d + b, d);
  _mm256_storeu_ps(out.s + b, _mm256_mul_ps(d, _mm256_cvtepi32_ps(sum)));
}

}  // namespace

void QuantizeRow(const float* x, int64_t k, const Q8Row& out) {
  const int64_t blocks = k / 32;
  if (blocks >= 8) {
    for (int64_t b = 0; b + 8 <= blocks; b += 8) QuantizeEight(x, b, out);
    // The last ones, some of them twice.
    if (blocks % 8 != 0) QuantizeEight(x, blocks - 8, out);
    return;
  }
  for (int64_t b = 0; b < blocks; ++b, x += 32) {
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
