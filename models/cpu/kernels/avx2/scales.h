// The header of a packed block for eight rows, and what each part's integer
// sums become with it. Row r has lane r; see blocks.h for the fields and
// llm_kernels.h for the chains.
#pragma once

#include "models/cpu/kernels/avx2/work.h"

namespace millrace::models {
namespace {

template <WeightFormat kFormat>
constexpr int kParts = ShapeOf(kFormat).columns / 32;

// A scale for each half of a part.
template <WeightFormat kFormat>
constexpr bool kHalves =
    kFormat == WeightFormat::kQ2_K || kFormat == WeightFormat::kQ3_K ||
    kFormat == WeightFormat::kQ6_K;

struct PartScales {
  __m256 d;
  __m256 m;       // with minima; Q2_K: dmin
  __m256i scale;  // kHalves: 16 bits for half 0, 16 bits for half 1
  __m256i min;    // Q2_K: likewise
};

// Bytes 2i and 2i + 1 of each 32-bit lane, each in the low (kHigh: high) byte
// of 16 bits.
template <bool kHigh = false>
inline __m256i PairOfBytes(__m256i v, int i) {
  const uint32_t both = 0x00010000u + static_cast<uint32_t>(2 * i) * 0x00010001;
  const uint32_t lane = kHigh ? both << 8 | 0x00800080u : both | 0x80008000u;
  const __m256i per_lane =
      _mm256_set_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0, 0x0c0c0c0c,
                       0x08080808, 0x04040404, 0);
  return _mm256_shuffle_epi8(
      v, _mm256_or_si256(per_lane, _mm256_set1_epi32(static_cast<int>(lane))));
}

inline __m256 FloatOfByte(__m256i v, int i) {
  return _mm256_cvtepi32_ps(
      _mm256_and_si256(_mm256_srli_epi32(v, 8 * i), _mm256_set1_epi32(255)));
}

// Where field i of the header stands.
template <WeightFormat kFormat>
struct FieldsAt {
  int64_t at[6];
  constexpr FieldsAt() : at() {
    for (int i = 0; i < 6; ++i) at[i] = Pack8::FieldAt(kFormat, i);
  }
};
template <WeightFormat kFormat>
constexpr FieldsAt<kFormat> kFields;

template <WeightFormat kFormat>
inline __m256i Words(const uint8_t* block, int field) {
  return LoadQuants(block + kFields<kFormat>.at[field]);
}
template <WeightFormat kFormat>
inline __m256 Halves(const uint8_t* block, int field) {
  return LoadHalves(block + kFields<kFormat>.at[field]);
}

// d = 2^(e - 128); the two least exponents give subnormals.
inline __m256 PowersOfTwo(const uint8_t* exponents) {
  const __m256i e = _mm256_cvtepu8_epi32(
      _mm_loadl_epi64(reinterpret_cast<const __m128i*>(exponents)));
  const __m256i two = _mm256_set1_epi32(2);
  const __m256i normal =
      _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
  const __m256i small = _mm256_sllv_epi32(_mm256_set1_epi32(0x200000), e);
  return _mm256_castsi256_ps(
      _mm256_blendv_epi8(normal, small, _mm256_cmpgt_epi32(two, e)));
}

template <WeightFormat kFormat>
inline void ReadScaleMins(const uint8_t* block, PartScales s[8]) {
  const __m256 d = Halves<kFormat>(block, 0);
  const __m256 less =
      _mm256_xor_ps(_mm256_set1_ps(-0.0f), Halves<kFormat>(block, 1));
  const __m256i a = Words<kFormat>(block, 2);
  const __m256i b = Words<kFormat>(block, 3);
  const __m256i c = Words<kFormat>(block, 4);
  const __m256i six = _mm256_set1_epi8(63);
  const __m256i four = _mm256_set1_epi8(15);
  const __m256i two = _mm256_set1_epi8(48);
  const auto high = [&](__m256i low, __m256i from) {
    return _mm256_or_si256(_mm256_and_si256(low, four),
                           _mm256_and_si256(_mm256_srli_epi16(from, 2), two));
  };
  const __m256i scales[2] = {_mm256_and_si256(a, six), high(c, a)};
  const __m256i mins[2] = {_mm256_and_si256(b, six),
                           high(_mm256_srli_epi16(c, 4), b)};
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    s[i].d = _mm256_mul_ps(d, FloatOfByte(scales[i / 4], i % 4));
    s[i].m = _mm256_mul_ps(less, FloatOfByte(mins[i / 4], i % 4));
  }
}

template <WeightFormat kFormat>
inline void ReadHeader(const uint8_t* block, PartScales s[kParts<kFormat>]) {
  if constexpr (kFormat == WeightFormat::kMXFP4) {
    s[0].d = PowersOfTwo(block + kFields<kFormat>.at[0]);
  } else if constexpr (kParts<kFormat> == 1) {
    s[0].d = Halves<kFormat>(block, 0);
    if constexpr (HasMin(kFormat)) s[0].m = Halves<kFormat>(block, 1);
  } else if constexpr (HasMin(kFormat)) {
    ReadScaleMins<kFormat>(block, s);
  } else if constexpr (kFormat == WeightFormat::kIQ4_XS) {
    const __m256 d = Halves<kFormat>(block, 0);
    const __m256i high = _mm256_cvtepu16_epi32(_mm_loadu_si128(
        reinterpret_cast<const __m128i*>(block + kFields<kFormat>.at[1])));
    const __m256i low = Words<kFormat>(block, 2);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      const __m256i ls = _mm256_or_si256(
          _mm256_and_si256(_mm256_srli_epi32(low, 4 * i),
                           _mm256_set1_epi32(15)),
          _mm256_slli_epi32(_mm256_and_si256(_mm256_srli_epi32(high, 2 * i),
                                             _mm256_set1_epi32(3)),
                            4));
      s[i].d = _mm256_mul_ps(
          d, _mm256_cvtepi32_ps(_mm256_sub_epi32(ls, _mm256_set1_epi32(32))));
    }
  } else {
    const __m256 d = Halves<kFormat>(block, 0);
    const __m256i four = _mm256_set1_epi16(15);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      s[i].d = d;
      if constexpr (kFormat == WeightFormat::kQ2_K) {
        const __m256i pair =
            PairOfBytes(Words<kFormat>(block, 2 + i / 2), i % 2);
        s[i].m = Halves<kFormat>(block, 1);
        s[i].scale = _mm256_and_si256(pair, four);
        s[i].min = _mm256_srli_epi16(pair, 4);
      } else if constexpr (kFormat == WeightFormat::kQ3_K) {
        const __m256i low =
            PairOfBytes(Words<kFormat>(block, 1 + i % 4 / 2), i % 2);
        const __m256i high = PairOfBytes(Words<kFormat>(block, 3), i % 2);
        const __m256i two = _mm256_and_si256(
            _mm256_srli_epi16(high, 2 * (i / 2)), _mm256_set1_epi16(3));
        s[i].scale = _mm256_sub_epi16(
            _mm256_or_si256(
                _mm256_and_si256(_mm256_srli_epi16(low, 4 * (i / 4)), four),
                _mm256_slli_epi16(two, 4)),
            _mm256_set1_epi16(32));
      } else {
        static_assert(kFormat == WeightFormat::kQ6_K);
        s[i].scale = _mm256_srai_epi16(
            PairOfBytes<true>(Words<kFormat>(block, 1 + i / 2), i % 2), 8);
      }
    }
  }
}

// ---- from integer sums to the chain ----

// What Σ code * x of a part is too great by, the codes being too great by
// kLess. `at` is the block of x.
template <WeightFormat kFormat>
[[gnu::always_inline]] inline __m256i TooMuch(const PartScales& s,
                                              const TileActs& x, int64_t at) {
  if constexpr (kLessShift<kFormat> < 0) {
    return _mm256_setzero_si256();
  } else if constexpr (kHalves<kFormat>) {
    return _mm256_slli_epi32(_mm256_madd_epi16(s.scale, HalfSums(x, at)),
                             kLessShift<kFormat>);
  } else {
    return _mm256_slli_epi32(_mm256_set1_epi32(x.sum[at]), kLessShift<kFormat>);
  }
}

// The chain's next link, or two.
template <WeightFormat kFormat>
[[gnu::always_inline]] inline __m256 AddSum(__m256 acc, __m256i isum,
                                            const PartScales& s,
                                            const TileActs& x, int64_t at) {
  const __m256 dx = _mm256_broadcast_ss(x.d + at);
  acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(isum), _mm256_mul_ps(s.d, dx), acc);
  if constexpr (HasMin(kFormat)) {
    acc = _mm256_fmadd_ps(s.m, _mm256_broadcast_ss(x.s + at), acc);
  }
  if constexpr (kFormat == WeightFormat::kQ2_K) {
    const __m256i imin = _mm256_madd_epi16(s.min, HalfSums(x, at));
    acc =
        _mm256_fnmadd_ps(_mm256_cvtepi32_ps(imin), _mm256_mul_ps(s.m, dx), acc);
  }
  return acc;
}

}  // namespace
}  // namespace millrace::models
