// Quantising, norm, activation, rotation of one row, eight values at a time.

#include "models/cpu/kernels/avx2/parts.h"
#include "models/cpu/kernels/avx2/vec8.h"

namespace millrace::models::avx2 {
namespace {

__m256 Abs(__m256 x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x); }

// Sums of bytes 0…15 and 16…31, as the two halves of a word, and of all.
int32_t SumHalves(__m256i q, int16_t* half) {
  const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), q);
  const __m256i quads = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  // [a0 a1 b0 b1] of both halves, then [a b] of both.
  __m128i s = _mm_hadd_epi32(_mm256_castsi256_si128(quads),
                             _mm256_extracti128_si256(quads, 1));
  s = _mm_hadd_epi32(s, s);
  const __m128i words = _mm_packs_epi32(s, s);
  _mm_storeu_si32(half, words);
  return _mm_cvtsi128_si32(_mm_madd_epi16(words, _mm_set1_epi16(1)));
}

// Four pairs: [c0 s0 c1 s1 …] meets [a0 a0 a1 a1 …] and [s0 c0 s1 c1 …] meets
// [b0 b0 b1 b1 …]; fmaddsub subtracts in even, adds in odd lanes.
__m256 RotatePairs(__m256 v, __m128 c, __m128 s) {
  const __m256 cs =
      _mm256_set_m128(_mm_unpackhi_ps(c, s), _mm_unpacklo_ps(c, s));
  const __m256 sc =
      _mm256_set_m128(_mm_unpackhi_ps(s, c), _mm_unpacklo_ps(s, c));
  return _mm256_fmaddsub_ps(_mm256_moveldup_ps(v), cs,
                            _mm256_mul_ps(_mm256_movehdup_ps(v), sc));
}

}  // namespace

void QuantizeRow(const float* x, int64_t k, const Q8Row& out) {
  constexpr float kLeastNormal = 0x1p-126f;
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  for (int64_t b = 0; b < k / 32; ++b, x += 32) {
    __m256 v[4];
    __m256 greatest = _mm256_setzero_ps();
    for (int i = 0; i < 4; ++i) {
      v[i] = _mm256_loadu_ps(x + 8 * i);
      greatest = _mm256_max_ps(Abs(v[i]), greatest);
    }
    float d = LaneMax8(greatest) / 127.0f;
    const bool zero = d < kLeastNormal;
    const __m256 inverse = _mm256_set1_ps(zero ? 0.0f : 1.0f / d);
    if (zero) d = 0.0f;
    __m256i q[4];
    for (int i = 0; i < 4; ++i) {
      q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse));
    }
    // The packs work in 128-bit halves; the permutation puts them in order.
    const __m256i bytes = _mm256_permutevar8x32_epi32(
        _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]),
                           _mm256_packs_epi32(q[2], q[3])),
        order);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out.q + b * 32), bytes);
    const int32_t sum = SumHalves(bytes, out.half + 2 * b);
    out.d[b] = d;
    out.s[b] = d * static_cast<float>(sum);
    out.sum[b] = sum;
  }
}

void RestOfRow(const float* x, int64_t k, const Q8Row& q, float* rest) {
  for (int64_t i = 0; i < k; i += 8) {
    const __m256i bytes = _mm256_cvtepi8_epi32(
        _mm_loadl_epi64(reinterpret_cast<const __m128i*>(q.q + i)));
    const __m256 near =
        _mm256_mul_ps(_mm256_set1_ps(q.d[i / 32]), _mm256_cvtepi32_ps(bytes));
    _mm256_storeu_ps(rest + i, _mm256_sub_ps(_mm256_loadu_ps(x + i), near));
  }
}

void RmsNorm(const float* x, const float* weight, int64_t n, float eps,
             float* out) {
  __m256 lanes = _mm256_setzero_ps();
  for (Chunks8 c(n); c.More(); c.Next()) {
    const __m256 v = c.Load(x);
    lanes = _mm256_fmadd_ps(v, v, lanes);
  }
  const float mean = LaneSum8(lanes) / static_cast<float>(n);
  const float root = _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(mean + eps)));
  const __m256 r = _mm256_set1_ps(1.0f / root);
  for (Chunks8 c(n); c.More(); c.Next()) {
    c.Store(out, _mm256_mul_ps(_mm256_mul_ps(c.Load(x), r), c.Load(weight)));
  }
}

void Add(float* x, const float* y, int64_t n) {
  for (Chunks8 c(n); c.More(); c.Next()) {
    c.Store(x, _mm256_add_ps(c.Load(x), c.Load(y)));
  }
}

void SiluMul(const float* gate, const float* up, int64_t n, float* out) {
  const __m256 one = _mm256_set1_ps(1.0f);
  const __m256 sign = _mm256_set1_ps(-0.0f);
  for (Chunks8 c(n); c.More(); c.Next()) {
    const __m256 g = c.Load(gate);
    const __m256 e = Exp8(_mm256_xor_ps(g, sign));
    const __m256 t = _mm256_div_ps(one, _mm256_add_ps(one, e));
    c.Store(out, _mm256_mul_ps(_mm256_mul_ps(g, t), c.Load(up)));
  }
}

void GeluMul(const float* gate, const float* up, int64_t n, float* out) {
  const __m256 one = _mm256_set1_ps(1.0f);
  const __m256 sign = _mm256_set1_ps(-0.0f);
  const __m256 cubic = _mm256_set1_ps(7.13548163e-2f);
  const __m256 linear = _mm256_set1_ps(1.59576912f);
  for (Chunks8 c(n); c.More(); c.Next()) {
    const __m256 g = c.Load(gate);
    const __m256 u =
        _mm256_mul_ps(g, _mm256_fmadd_ps(_mm256_mul_ps(g, g), cubic, linear));
    const __m256 e = Exp8(_mm256_xor_ps(u, sign));
    const __m256 t = _mm256_div_ps(one, _mm256_add_ps(one, e));
    c.Store(out, _mm256_mul_ps(_mm256_mul_ps(g, t), c.Load(up)));
  }
}

void SoftCap(float* x, float cap, int64_t n) {
  const __m256 one = _mm256_set1_ps(1.0f);
  const __m256 two = _mm256_set1_ps(2.0f);
  const __m256 inner = _mm256_set1_ps(2.0f / cap);
  const __m256 outer = _mm256_set1_ps(cap);
  for (Chunks8 c(n); c.More(); c.Next()) {
    const __m256 e = Exp8(_mm256_mul_ps(c.Load(x), inner));
    const __m256 part = _mm256_div_ps(two, _mm256_add_ps(e, one));
    c.Store(x, _mm256_mul_ps(_mm256_sub_ps(one, part), outer));
  }
}

void Rope(float* head, int64_t head_dim, const float* cos, const float* sin,
          bool interleaved) {
  const int64_t half = head_dim / 2;
  if (!interleaved) {
    float* other = head + half;
    for (Chunks8 i(half); i.More(); i.Next()) {
      const __m256 a = i.Load(head);
      const __m256 b = i.Load(other);
      const __m256 c = i.Load(cos);
      const __m256 s = i.Load(sin);
      i.Store(head, _mm256_fmsub_ps(a, c, _mm256_mul_ps(b, s)));
      i.Store(other, _mm256_fmadd_ps(a, s, _mm256_mul_ps(b, c)));
    }
    return;
  }
  int64_t i = 0;
  for (; i + 4 <= half; i += 4) {
    _mm256_storeu_ps(head + 2 * i,
                     RotatePairs(_mm256_loadu_ps(head + 2 * i),
                                 _mm_loadu_ps(cos + i), _mm_loadu_ps(sin + i)));
  }
  if (i == half) return;
  const __m256i mask = FirstLanes(2 * (half - i));
  const __m128i half_mask = _mm256_castsi256_si128(FirstLanes(half - i));
  _mm256_maskstore_ps(head + 2 * i, mask,
                      RotatePairs(_mm256_maskload_ps(head + 2 * i, mask),
                                  _mm_maskload_ps(cos + i, half_mask),
                                  _mm_maskload_ps(sin + i, half_mask)));
}

void Scale(const float* x, float scale, int64_t n, float* out) {
  const __m256 factor = _mm256_set1_ps(scale);
  for (Chunks8 c(n); c.More(); c.Next()) {
    c.Store(out, _mm256_mul_ps(c.Load(x), factor));
  }
}

}  // namespace millrace::models::avx2
