// The codes of one packed part, 8 rows x 32 columns, as eight vectors of
// unsigned bytes: columns 4j…4j+3 of every row in vector j. See packing.h.
#pragma once

#include "models/cpu/kernels/avx2/work.h"

namespace millrace::models {
namespace {

// The integer that a byte of UnpackCodes stands for is the byte less this.
template <WeightFormat kFormat>
constexpr int kLess = kFormat == WeightFormat::kMXFP4 ? 16
                      : kFormat == WeightFormat::kQ8_0 ||
                              kFormat == WeightFormat::kIQ4_NL ||
                              kFormat == WeightFormat::kIQ4_XS
                          ? 128
                          : OffsetOf(kFormat);
// log2 of it, -1 where nothing is to be taken off.
template <WeightFormat kFormat>
constexpr int kLessShift = kLess<kFormat> == 0 ? -1
                                               : __builtin_ctz(kLess<kFormat>);

// Sixteen bytes for vpshufb, in both halves.
inline __m256i CodeTable(const int8_t table[16]) {
  return _mm256_broadcastsi128_si256(
      _mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
}

// Bits of every byte moved up, or down when `up` is negative; those that come
// from a neighbour are the caller's to mask off.
inline __m256i MoveBits(__m256i v, int up) {
  return up >= 0 ? _mm256_slli_epi16(v, up) : _mm256_srli_epi16(v, -up);
}

// Low halves first (columns 0-15), then high halves (columns 16-31).
[[gnu::always_inline]] inline void UnpackNibbles(const uint8_t* p,
                                                 __m256i w[8]) {
  const __m256i low = _mm256_set1_epi8(15);
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const __m256i q = LoadQuants(p + 32 * j);
    w[j] = _mm256_and_si256(q, low);
    w[j + 4] = _mm256_and_si256(_mm256_srli_epi16(q, 4), low);
  }
}

template <WeightFormat kFormat>
[[gnu::always_inline]] inline void UnpackCodes(const uint8_t* p, __m256i w[8]) {
  constexpr BlockShape kShape = ShapeOf(kFormat);
  constexpr int64_t kTwoAt = Pack8::TwoAt(kFormat);
  constexpr int64_t kOneAt = Pack8::OneAt(kFormat);
  if constexpr (kShape.low_bits == 8) {
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) w[j] = LoadQuants(p + 32 * j);
  } else if constexpr (kShape.low_bits == 4) {
    UnpackNibbles(p, w);
  } else {
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) w[j] = _mm256_setzero_si256();
  }
  if constexpr (kShape.two_at >= 0) {
    const __m256i mask = _mm256_set1_epi8(3 << kShape.two_at);
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const __m256i two = LoadQuants(p + kTwoAt + 32 * h);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        const __m256i bits = MoveBits(two, kShape.two_at - 2 * j);
        w[4 * h + j] =
            _mm256_or_si256(w[4 * h + j], _mm256_and_si256(bits, mask));
      }
    }
  }
  if constexpr (kShape.one_at >= 0) {
    const __m256i mask = _mm256_set1_epi8(1 << kShape.one_at);
    const __m256i one = LoadQuants(p + kOneAt);
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      const __m256i bits = MoveBits(one, kShape.one_at - j);
      w[j] = _mm256_or_si256(w[j], _mm256_and_si256(bits, mask));
    }
  }
}

// The same, but what stands for a signed integer is made unsigned: see kLess.
template <WeightFormat kFormat>
[[gnu::always_inline]] inline void UnpackUnsigned(const uint8_t* p,
                                                  __m256i w[8]) {
  UnpackCodes<kFormat>(p, w);
  if constexpr (kFormat == WeightFormat::kQ8_0) {
    const __m256i flip = _mm256_set1_epi8(static_cast<char>(0x80));
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) w[j] = _mm256_xor_si256(w[j], flip);
  }
  if constexpr (kFormat == WeightFormat::kIQ4_NL ||
                kFormat == WeightFormat::kIQ4_XS ||
                kFormat == WeightFormat::kMXFP4) {
    const bool fp4 = kFormat == WeightFormat::kMXFP4;
    const __m256i table =
        _mm256_add_epi8(CodeTable(fp4 ? kFp4 : kIq4),
                        _mm256_set1_epi8(static_cast<char>(kLess<kFormat>)));
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) w[j] = _mm256_shuffle_epi8(table, w[j]);
  }
}

}  // namespace
}  // namespace millrace::models
