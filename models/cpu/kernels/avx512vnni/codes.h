// From the planes of a part (see packing.h) to eight vectors of unsigned bytes,
// columns 4j…4j+3 of sixteen rows in vector j: what vpdpbusd takes. Where the
// weights' integers are signed, the bytes stand kShift above them. For
// linear*.cc alone.
#pragma once

#include "models/cpu/kernels/avx512vnni/work.h"

namespace millrace::models {
namespace {

constexpr bool IsIq4(WeightFormat format) {
  return format == WeightFormat::kIQ4_NL || format == WeightFormat::kIQ4_XS;
}

// What the bytes stand above the integers of the weights.
template <WeightFormat kFormat>
constexpr int32_t kShift = kFormat == WeightFormat::kQ8_0 || IsIq4(kFormat)
                               ? 128
                           : kFormat == WeightFormat::kMXFP4
                               ? 12
                               : OffsetOf(kFormat);

// x shifted left by kBits, or right where it is negative.
template <int kBits>
inline __m512i Shift(__m512i x) {
  if constexpr (kBits > 0) return _mm512_slli_epi16(x, kBits);
  if constexpr (kBits < 0) return _mm512_srli_epi16(x, -kBits);
  return x;
}
// w | (bits & mask)
inline __m512i OrMasked(__m512i w, __m512i bits, __m512i mask) {
  return _mm512_ternarylogic_epi32(w, bits, mask, 0xf8);
}

// The sixteen entries of a table, kShift above, for every quarter of a vector.
template <WeightFormat kFormat>
inline __m512i Table() {
  alignas(16) uint8_t entries[16];
  for (int i = 0; i < 16; ++i) {
    const int entry = IsIq4(kFormat) ? kIq4[i] : kFp4[i];
    entries[i] = static_cast<uint8_t>(entry + kShift<kFormat>);
  }
  return _mm512_broadcast_i32x4(
      _mm_load_si128(reinterpret_cast<const __m128i*>(entries)));
}

// Vector j's two upper bits, j of four in each of two planes.
template <int kTo, int kJ>
inline void AddTwo(const __m512i two[2], __m512i w[8]) {
  const __m512i mask = _mm512_set1_epi8(3 << kTo);
  w[kJ] = OrMasked(w[kJ], Shift<kTo - 2 * kJ>(two[0]), mask);
  w[kJ + 4] = OrMasked(w[kJ + 4], Shift<kTo - 2 * kJ>(two[1]), mask);
  if constexpr (kJ < 3) AddTwo<kTo, kJ + 1>(two, w);
}
template <int kTo, int kJ>
inline void AddOne(__m512i one, __m512i w[8]) {
  w[kJ] = OrMasked(w[kJ], Shift<kTo - kJ>(one), _mm512_set1_epi8(1 << kTo));
  if constexpr (kJ < 7) AddOne<kTo, kJ + 1>(one, w);
}

template <WeightFormat kFormat>
inline void UnpackCodes(const uint8_t* p, __m512i w[8]) {
  constexpr BlockShape kShape = ShapeOf(kFormat);
  if constexpr (kShape.low_bits == 8) {
    const __m512i flip = _mm512_set1_epi8(static_cast<char>(0x80));
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      w[j] = _mm512_xor_si512(LoadWords(p + 64 * j), flip);
    }
  } else if constexpr (kShape.low_bits == 4) {
    const __m512i low = _mm512_set1_epi8(15);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const __m512i q = LoadWords(p + 64 * j);
      w[j] = _mm512_and_si512(q, low);
      w[j + 4] = _mm512_and_si512(_mm512_srli_epi16(q, 4), low);
    }
  } else {
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) w[j] = _mm512_setzero_si512();
  }
  if constexpr (kShape.two_at >= 0) {
    const uint8_t* at = p + Pack16::TwoAt(kFormat);
    const __m512i two[2] = {LoadWords(at), LoadWords(at + 64)};
    AddTwo<kShape.two_at, 0>(two, w);
  }
  if constexpr (kShape.one_at >= 0) {
    AddOne<kShape.one_at, 0>(LoadWords(p + Pack16::OneAt(kFormat)), w);
  }
  if constexpr (IsIq4(kFormat) || kFormat == WeightFormat::kMXFP4) {
    const __m512i table = Table<kFormat>();
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) w[j] = _mm512_shuffle_epi8(table, w[j]);
  }
}

}  // namespace
}  // namespace millrace::models
