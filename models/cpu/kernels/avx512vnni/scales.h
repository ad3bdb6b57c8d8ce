// The numbers beside the codes of one packed block, worked out once for a tile
// of tokens. Sixteen rows in the lanes. For linear*.cc alone.
#pragma once

#include "models/cpu/kernels/avx512vnni/codes.h"

namespace millrace::models {
namespace {

// Formats whose integer sum is Σ_h sc_h * Σ w x over the halves of a part.
constexpr bool HasHalves(WeightFormat format) {
  return format == WeightFormat::kQ2_K || format == WeightFormat::kQ3_K ||
         format == WeightFormat::kQ6_K;
}

template <WeightFormat kFormat>
constexpr int kParts = ShapeOf(kFormat).columns / 32;

// ---- one scale for each part, perhaps a minimum ----

template <WeightFormat kFormat>
struct Scales16 {
  __m512 d[kParts<kFormat>];
  __m512 m[HasMin(kFormat) ? kParts<kFormat> : 1];
};

// Byte i of each word as floats.
template <int kByte>
inline __m512 ByteToFloat(__m512i words) {
  const __m512i byte = _mm512_and_si512(_mm512_srli_epi32(words, 8 * kByte),
                                        _mm512_set1_epi32(255));
  return _mm512_cvtepi32_ps(byte);
}
inline void BytesToFloats(__m512i words, __m512 out[4]) {
  out[0] = ByteToFloat<0>(words);
  out[1] = ByteToFloat<1>(words);
  out[2] = ByteToFloat<2>(words);
  out[3] = ByteToFloat<3>(words);
}

// 2^(e - 128) from 16 exponents; the two least are subnormal.
inline __m512 HalfOfE8M0(const uint8_t* p) {
  const __m512i e = _mm512_cvtepu8_epi32(
      _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m512i normal =
      _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
  const __mmask16 small = _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2));
  return _mm512_castsi512_ps(
      _mm512_mask_sllv_epi32(normal, small, _mm512_set1_epi32(0x200000), e));
}

// d = d * sc, m = -(dmin * mn) of the eight parts of Q4_K and Q5_K; the 12
// bytes are described in blocks.h.
inline void ScaleMins(const uint8_t* p, __m512 d, __m512 dmin, __m512 ds[8],
                      __m512 ms[8]) {
  const __m512i six = _mm512_set1_epi8(63);
  const __m512i low = _mm512_set1_epi8(15);
  const __m512i high = _mm512_set1_epi8(0x30);
  const __m512i w0 = LoadWords(p);
  const __m512i w1 = LoadWords(p + 64);
  const __m512i w2 = LoadWords(p + 128);
  BytesToFloats(_mm512_and_si512(w0, six), ds);
  BytesToFloats(_mm512_and_si512(w1, six), ms);
  BytesToFloats(
      OrMasked(_mm512_and_si512(w2, low), _mm512_srli_epi16(w0, 2), high),
      ds + 4);
  BytesToFloats(OrMasked(_mm512_and_si512(_mm512_srli_epi16(w2, 4), low),
                         _mm512_srli_epi16(w1, 2), high),
                ms + 4);
  dmin = _mm512_xor_ps(dmin, _mm512_set1_ps(-0.0f));
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    ds[i] = _mm512_mul_ps(d, ds[i]);
    ms[i] = _mm512_mul_ps(dmin, ms[i]);
  }
}

// Part i's scale: 2 bits of p's half and 4 of the word after the halves.
template <int kPart>
inline void Iq4Scales(__m512i high, __m512i low, __m512 d, __m512* ds) {
  const __m512i h = _mm512_and_si512(
      kPart < 2 ? _mm512_slli_epi32(high, kPart < 2 ? 4 - 2 * kPart : 0)
                : _mm512_srli_epi32(high, kPart < 2 ? 0 : 2 * kPart - 4),
      _mm512_set1_epi32(0x30));
  const __m512i ls =
      OrMasked(h, _mm512_srli_epi32(low, 4 * kPart), _mm512_set1_epi32(15));
  ds[kPart] = _mm512_mul_ps(
      d, _mm512_cvtepi32_ps(_mm512_sub_epi32(ls, _mm512_set1_epi32(32))));
  if constexpr (kPart < 7) Iq4Scales<kPart + 1>(high, low, d, ds);
}

template <WeightFormat kFormat>
inline void Load(const uint8_t* block, Scales16<kFormat>& s) {
  const auto field = [block](int i) {
    return block + Pack16::FieldAt(kFormat, i);
  };
  if constexpr (kFormat == WeightFormat::kMXFP4) {
    s.d[0] = HalfOfE8M0(field(0));
  } else if constexpr (kFormat == WeightFormat::kIQ4_XS) {
    const __m512i high = _mm512_cvtepu16_epi32(
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(field(1))));
    Iq4Scales<0>(high, LoadWords(field(2)), LoadHalves(field(0)), s.d);
  } else if constexpr (kParts<kFormat> == 8) {
    ScaleMins(field(2), LoadHalves(field(0)), LoadHalves(field(1)), s.d, s.m);
  } else {
    s.d[0] = LoadHalves(field(0));
    if constexpr (HasMin(kFormat)) s.m[0] = LoadHalves(field(1));
  }
}

// ---- a scale for each half of a part ----

// Scales as signed bytes, those of parts 2i and 2i + 1 in words[i].
template <WeightFormat kFormat>
struct HalfScales16 {
  __m512 d;
  __m512 dmin;  // Q2_K alone, and mins
  __m512i words[4];
  __m512i mins[kFormat == WeightFormat::kQ2_K ? 4 : 1];

  // The two signed bytes of a part as int16.
  static __m512i Pair(const __m512i* words, int part) {
    const __m512i w = words[part / 2];
    const __m512i here = part % 2 == 0 ? w : _mm512_srli_epi32(w, 16);
    // Byte 0 to byte 1, byte 1 to byte 3, zeros below.
    const __m512i places = _mm512_broadcast_i32x4(_mm_setr_epi8(
        -1, 0, -1, 1, -1, 4, -1, 5, -1, 8, -1, 9, -1, 12, -1, 13));
    return _mm512_srai_epi16(_mm512_shuffle_epi8(here, places), 8);
  }
};

template <WeightFormat kFormat>
inline void Load(const uint8_t* block, HalfScales16<kFormat>& s) {
  const auto field = [block](int i) {
    return block + Pack16::FieldAt(kFormat, i);
  };
  s.d = LoadHalves(field(0));
  const __m512i low = _mm512_set1_epi8(15);
  if constexpr (kFormat == WeightFormat::kQ6_K) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) s.words[i] = LoadWords(field(1 + i));
  } else if constexpr (kFormat == WeightFormat::kQ2_K) {
    s.dmin = LoadHalves(field(1));
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const __m512i w = LoadWords(field(2 + i));
      s.words[i] = _mm512_and_si512(w, low);
      s.mins[i] = _mm512_and_si512(_mm512_srli_epi16(w, 4), low);
    }
  } else {  // Q3_K: four low bits in two words, two high ones in the third
    const __m512i high = LoadWords(field(3));
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const __m512i w = LoadWords(field(1 + i % 2));
      const __m512i four =
          _mm512_and_si512(_mm512_srli_epi16(w, i < 2 ? 0 : 4), low);
      const __m512i two = i < 2 ? _mm512_slli_epi16(high, 4 - 2 * i)
                                : _mm512_srli_epi16(high, 2 * i - 4);
      s.words[i] = _mm512_sub_epi8(OrMasked(four, two, _mm512_set1_epi8(0x30)),
                                   _mm512_set1_epi8(32));
    }
  }
}

template <WeightFormat kFormat, bool kHalves = HasHalves(kFormat)>
struct ScalesOf : Scales16<kFormat> {};
template <WeightFormat kFormat>
struct ScalesOf<kFormat, true> : HalfScales16<kFormat> {};

}  // namespace
}  // namespace millrace::models
