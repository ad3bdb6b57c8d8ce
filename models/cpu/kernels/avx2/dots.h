// Integer dot products of AVX2: one part of 8 rows x 32 columns against the
// activations of some tokens, broadcast four at a time.
//
// Unsigned codes meet signed activations in vpmaddubsw, whose pairs of products
// are summed in 16 bits for as many steps of four columns as cannot saturate:
// |sum of a lane| <= steps * 2 * code * 127 <= 32767, so eight steps of 4-bit
// codes (30480), four of 5-bit ones (31496), two of 6-bit ones (32004). Then
// one vpmaddwd, which also multiplies by the scale of a half.
//
// Signed weights of 8 bits take |w| as the unsigned and sign(x, w) as the
// signed operand; x never is -128, and 128 * 127 * 2 = 32512 still fits.
#pragma once

#include "models/cpu/kernels/avx2/codes.h"
#include "models/cpu/kernels/avx2/scales.h"

namespace millrace::models {
namespace {

template <WeightFormat kFormat>
constexpr bool kSigned =
    kFormat == WeightFormat::kQ8_0 || kFormat == WeightFormat::kIQ4_NL ||
    kFormat == WeightFormat::kIQ4_XS;

// Steps of one 16-bit sum; with a scale for each half, not beyond it.
template <WeightFormat kFormat>
constexpr int kSteps = kFormat == WeightFormat::kQ6_K    ? 2
                       : kHalves<kFormat>                ? 4
                       : ShapeOf(kFormat).one_at >= 0    ? 4
                       : kFormat == WeightFormat::kMXFP4 ? 4
                                                         : 8;

// What vpmaddwd multiplies the 16-bit sums of half 0 and 1 by.
struct Factors {
  __m256i of_half[2];
};
template <WeightFormat kFormat>
inline Factors FactorsOf(const PartScales& s) {
  if constexpr (!kHalves<kFormat>) {
    const __m256i one = _mm256_set1_epi16(1);
    return {{one, one}};
  } else {
    const __m256i low = _mm256_set1_epi32(0xffff);
    return {{_mm256_or_si256(_mm256_and_si256(s.scale, low),
                             _mm256_slli_epi32(s.scale, 16)),
             _mm256_or_si256(_mm256_andnot_si256(low, s.scale),
                             _mm256_srli_epi32(s.scale, 16))}};
  }
}

// Σ code x of a part, by half's scale; step(j) is the vpmaddubsw of columns
// 4j…4j+3.
template <WeightFormat kFormat, typename Step>
[[gnu::always_inline]] inline __m256i SumSteps(const Factors& factors,
                                               const Step& step) {
  constexpr int kSums = 8 / kSteps<kFormat>;
  __m256i dot[kSums];
#pragma GCC unroll 4
  for (int i = 0; i < kSums; ++i) {
    const int first = i * kSteps<kFormat>;
    __m256i sum = _mm256_add_epi16(step(first), step(first + 1));
#pragma GCC unroll 4
    for (int j = first + 2; j < first + kSteps<kFormat>; j += 2) {
      sum = _mm256_add_epi16(sum, _mm256_add_epi16(step(j), step(j + 1)));
    }
    dot[i] = _mm256_madd_epi16(sum, factors.of_half[i * 2 / kSums]);
  }
  if constexpr (kSums == 1) return dot[0];
  const __m256i two = _mm256_add_epi32(dot[0], dot[1]);
  if constexpr (kSums == 2) return two;
  if constexpr (kSums == 4) {
    return _mm256_add_epi32(two, _mm256_add_epi32(dot[2], dot[3]));
  }
}

// Four columns of signed weights, whose unpacked codes are c.
template <WeightFormat kFormat>
inline __m256i SignedWeights(__m256i c) {
  if constexpr (kFormat == WeightFormat::kQ8_0) return c;
  return _mm256_shuffle_epi8(CodeTable(kIq4), c);
}

template <WeightFormat kFormat, int kTokens>
[[gnu::always_inline]] inline void SignedDots(const uint8_t* part,
                                              const TileActs& x, int64_t at,
                                              __m256i isum[kTokens]) {
  __m256i codes[8];
  UnpackCodes<kFormat>(part, codes);
#pragma GCC unroll 4
  for (int t = 0; t < kTokens; ++t) isum[t] = _mm256_setzero_si256();
#pragma GCC unroll 8
  for (int j = 0; j < 8; ++j) {
    const __m256i w = SignedWeights<kFormat>(codes[j]);
    const __m256i magnitude = _mm256_abs_epi8(w);
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) {
      const __m256i signed_x =
          _mm256_sign_epi8(Broadcast4(x.q + t * x.ld_q + at * 32 + 4 * j), w);
      isum[t] = _mm256_add_epi32(
          isum[t], _mm256_madd_epi16(_mm256_maddubs_epi16(magnitude, signed_x),
                                     _mm256_set1_epi16(1)));
    }
  }
}

template <WeightFormat kFormat, int kTokens>
[[gnu::always_inline]] inline void UnsignedDots(const uint8_t* part,
                                                const PartScales& s,
                                                const TileActs& x, int64_t at,
                                                __m256i isum[kTokens]) {
  __m256i w[8];
  UnpackUnsigned<kFormat>(part, w);
  const Factors factors = FactorsOf<kFormat>(s);
#pragma GCC unroll 4
  for (int t = 0; t < kTokens; ++t) {
    const int8_t* q = x.q + t * x.ld_q + at * 32;
    isum[t] = SumSteps<kFormat>(factors, [&](int j) {
      return _mm256_maddubs_epi16(w[j], Broadcast4(q + 4 * j));
    });
    if constexpr (kLessShift<kFormat> >= 0) {
      isum[t] = _mm256_sub_epi32(isum[t],
                                 TooMuch<kFormat>(s, x, t * x.ld_block + at));
    }
  }
}

// kTokens tokens x 8 rows over all blocks; the weights are streamed.
template <WeightFormat kFormat, int kTokens>
inline void GemvTile(const uint8_t* w, int64_t blocks, TileActs x,
                     __m256 acc[kTokens]) {
  constexpr int64_t kPart = Pack8::QuantBytes(kFormat);
  constexpr int64_t kPartsAt = Pack8::PartsAt(kFormat);
  constexpr int64_t kBlock = Pack8::BlockBytes(kFormat);
  constexpr int64_t kStride = kBlock / kParts<kFormat>;
  // Zen 3: 1152 to 2304 were equal, 4608 worse. Zen 5 would have 8192: Q4_1 50
  // against 62 GMAC/s for one token.
  constexpr int64_t kAhead = 2304;
#pragma GCC unroll 4
  for (int t = 0; t < kTokens; ++t) acc[t] = _mm256_setzero_ps();
  for (int64_t b = 0; b < blocks; ++b, w += kBlock) {
    PartScales scales[kParts<kFormat>];
    ReadHeader<kFormat>(w, scales);
    const uint8_t* part = w + kPartsAt;
#pragma GCC unroll 1
    for (int i = 0; i < kParts<kFormat>; ++i, part += kPart) {
#pragma GCC unroll 8
      for (int64_t line = 0; line < kStride; line += 64) {
        Prefetch(w + i * kStride + kAhead + line);
      }
      const int64_t at = b * kParts<kFormat> + i;
      __m256i isum[kTokens];
      if constexpr (kSigned<kFormat>) {
        SignedDots<kFormat, kTokens>(part, x, at, isum);
      } else {
        UnsignedDots<kFormat, kTokens>(part, scales[i], x, at, isum);
      }
#pragma GCC unroll 4
      for (int t = 0; t < kTokens; ++t) {
        acc[t] =
            AddSum<kFormat>(acc[t], isum[t], scales[i], x, t * x.ld_block + at);
      }
    }
  }
}

}  // namespace
}  // namespace millrace::models
