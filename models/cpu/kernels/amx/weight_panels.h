// Packed integer weights as bf16 in tile order: what prompt_linear multiplies.
// Each weight is bf16 (to nearest even, a subnormal becoming a zero) of exactly
// the "Unpacked weights" of llm_kernels.h:
//
//   w = fma(float(code), d, m)
//
// Where the weight's integer is code - shift, m is -shift * d, which is exact
// since shift has two bits at most; the fma then rounds the same product once.
// (A weight of zero may lose its sign, which no sum shows.) Codes and scales
// are unpacked as for VNNI, sixteen rows in the lanes.
#pragma once

#include "models/cpu/kernels/amx/bf16_panels.h"
#include "models/cpu/kernels/avx512vnni/scales.h"

namespace millrace::models {
namespace {

// Factors of the codes of a part, for columns 0-15 and 16-31.
struct PartFactors {
  __m512 d[2];
  __m512 m[2];
};

template <WeightFormat kFormat>
inline PartFactors FactorsOf(const Scales16<kFormat>& s, int part) {
  const __m512 d = s.d[part];
  __m512 m;
  if constexpr (HasMin(kFormat)) {
    m = s.m[part];
  } else {
    m = _mm512_mul_ps(d, _mm512_set1_ps(-kShift<kFormat>));
  }
  return {{d, d}, {m, m}};
}

template <WeightFormat kFormat>
inline PartFactors FactorsOf(const HalfScales16<kFormat>& s, int part) {
  using S = HalfScales16<kFormat>;
  const auto low = [](__m512i pair) {
    return _mm512_cvtepi32_ps(
        _mm512_srai_epi32(_mm512_slli_epi32(pair, 16), 16));
  };
  const auto high = [](__m512i pair) {
    return _mm512_cvtepi32_ps(_mm512_srai_epi32(pair, 16));
  };
  const __m512i scales = S::Pair(s.words, part);
  PartFactors f;
  f.d[0] = _mm512_mul_ps(s.d, low(scales));
  f.d[1] = _mm512_mul_ps(s.d, high(scales));
  if constexpr (kFormat == WeightFormat::kQ2_K) {
    const __m512i mins = S::Pair(s.mins, part);
    const __m512 dmin = _mm512_xor_ps(s.dmin, _mm512_set1_ps(-0.0f));
    f.m[0] = _mm512_mul_ps(dmin, low(mins));
    f.m[1] = _mm512_mul_ps(dmin, high(mins));
  } else {
    const __m512 shift = _mm512_set1_ps(-kShift<kFormat>);
    f.m[0] = _mm512_mul_ps(f.d[0], shift);
    f.m[1] = _mm512_mul_ps(f.d[1], shift);
  }
  return f;
}

// Two columns become one row of a tile.
inline void StorePairs(__m512 even, __m512 odd, uint8_t* to) {
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11,
                                         26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21,
                                         5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  _mm512_store_si512(
      to, _mm512_permutexvar_epi16(order, reinterpret_cast<__m512i>(
                                              _mm512_cvtne2ps_pbh(odd, even))));
}

// ---- any code: eight bits are masked and converted ----

// Byte kByte of each word: one of four neighbouring columns.
template <int kByte>
inline __m512 WeightOfByte(__m512i codes, __m512 d, __m512 m) {
  __m512i code = codes;
  if constexpr (kByte > 0) code = _mm512_srli_epi32(code, 8 * kByte);
  if constexpr (kByte < 3)
    code = _mm512_and_si512(code, _mm512_set1_epi32(255));
  return _mm512_fmadd_ps(_mm512_cvtepi32_ps(code), d, m);
}

template <WeightFormat kFormat>
inline void BytesToTile(const uint8_t* p, const PartFactors& f, uint8_t* to) {
  __m512i codes[8];
  UnpackCodes<kFormat>(p, codes);
#pragma GCC unroll 8
  for (int j = 0; j < 8; ++j) {
    const __m512 d = f.d[j / 4];
    const __m512 m = f.m[j / 4];
    StorePairs(WeightOfByte<0>(codes[j], d, m), WeightOfByte<1>(codes[j], d, m),
               to + 128 * j);
    StorePairs(WeightOfByte<2>(codes[j], d, m), WeightOfByte<3>(codes[j], d, m),
               to + 128 * j + 64);
  }
}

// ---- codes of four bits: a permutation of a table of 16 integers ----
// It heeds the low four bits of its index alone, so it is mask and conversion
// in one: 14 % more weights a second.

template <WeightFormat kFormat>
constexpr bool kHasNibbles = ShapeOf(kFormat).low_bits == 4 &&
                             ShapeOf(kFormat).two_at < 0 &&
                             ShapeOf(kFormat).one_at < 0;

template <WeightFormat kFormat>
inline __m512 IntegerTable() {
  alignas(64) float entries[16];
  for (int i = 0; i < 16; ++i) {
    entries[i] =
        static_cast<float>(IntegerOf(kFormat, static_cast<uint8_t>(i)));
  }
  return _mm512_load_ps(entries);
}

// Nibble kNibble of each word.
template <WeightFormat kFormat, int kNibble>
inline __m512 WeightOfNibble(__m512i codes, __m512 table,
                             const PartFactors& f) {
  if constexpr (kNibble > 0) codes = _mm512_srli_epi32(codes, 4 * kNibble);
  const __m512 integer = _mm512_permutexvar_ps(codes, table);
  if constexpr (HasMin(kFormat))
    return _mm512_fmadd_ps(integer, f.d[0], f.m[0]);
  return _mm512_mul_ps(integer, f.d[0]);
}

// Low nibbles are columns 4j to 4j + 3, high ones stand 16 columns behind.
template <WeightFormat kFormat>
inline void NibblesToTile(const uint8_t* p, const PartFactors& f, uint8_t* to) {
  const __m512 table = IntegerTable<kFormat>();
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const __m512i codes = LoadWords(p + 64 * j);
    uint8_t* low = to + 128 * j;
    uint8_t* high = low + 512;
    StorePairs(WeightOfNibble<kFormat, 0>(codes, table, f),
               WeightOfNibble<kFormat, 2>(codes, table, f), low);
    StorePairs(WeightOfNibble<kFormat, 4>(codes, table, f),
               WeightOfNibble<kFormat, 6>(codes, table, f), low + 64);
    StorePairs(WeightOfNibble<kFormat, 1>(codes, table, f),
               WeightOfNibble<kFormat, 3>(codes, table, f), high);
    StorePairs(WeightOfNibble<kFormat, 5>(codes, table, f),
               WeightOfNibble<kFormat, 7>(codes, table, f), high + 64);
  }
}

// ---- whole rows ----

template <WeightFormat kFormat>
inline void PartToTile(const uint8_t* p, const PartFactors& f, uint8_t* to) {
  if constexpr (kHasNibbles<kFormat>) {
    NibblesToTile<kFormat>(p, f, to);
  } else {
    BytesToTile<kFormat>(p, f, to);
  }
}

// Blocks of the file's format to tiles of 32 columns, one after the other. Asks
// for the blocks `ahead` bytes behind them.
template <WeightFormat kFormat>
void BlocksToTiles(const uint8_t* block, int64_t num_blocks, int64_t ahead,
                   uint8_t* to) {
  constexpr int64_t kBlock = Pack16::BlockBytes(kFormat);
  constexpr int64_t kPartBytes = Pack16::QuantBytes(kFormat);
  constexpr int64_t kPartShare = kBlock / kParts<kFormat>;
  for (const uint8_t* end = block + num_blocks * kBlock; block < end;
       block += kBlock) {
    ScalesOf<kFormat> scales;
    Load(block, scales);
    const uint8_t* p = block + Pack16::PartsAt(kFormat);
#pragma GCC unroll 1
    for (int part = 0; part < kParts<kFormat>; ++part) {
      for (int64_t line = 0; line < kPartShare; line += 64) {
        Prefetch(block + ahead + part * kPartShare + line);
      }
      PartToTile<kFormat>(p, FactorsOf(scales, part), to);
      p += kPartBytes;
      to += kStepBytes;
    }
  }
}

// Null for float formats.
using ToTiles = void (*)(const uint8_t* block, int64_t num_blocks,
                         int64_t ahead, uint8_t* to);

inline ToTiles ToTilesOf(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
    case WeightFormat::kF16:
    case WeightFormat::kBF16:
      break;
    case WeightFormat::kQ8_0:
      return BlocksToTiles<WeightFormat::kQ8_0>;
    case WeightFormat::kQ4_0:
      return BlocksToTiles<WeightFormat::kQ4_0>;
    case WeightFormat::kQ4_1:
      return BlocksToTiles<WeightFormat::kQ4_1>;
    case WeightFormat::kQ5_0:
      return BlocksToTiles<WeightFormat::kQ5_0>;
    case WeightFormat::kQ5_1:
      return BlocksToTiles<WeightFormat::kQ5_1>;
    case WeightFormat::kQ2_K:
      return BlocksToTiles<WeightFormat::kQ2_K>;
    case WeightFormat::kQ3_K:
      return BlocksToTiles<WeightFormat::kQ3_K>;
    case WeightFormat::kQ4_K:
      return BlocksToTiles<WeightFormat::kQ4_K>;
    case WeightFormat::kQ5_K:
      return BlocksToTiles<WeightFormat::kQ5_K>;
    case WeightFormat::kQ6_K:
      return BlocksToTiles<WeightFormat::kQ6_K>;
    case WeightFormat::kIQ4_NL:
      return BlocksToTiles<WeightFormat::kIQ4_NL>;
    case WeightFormat::kIQ4_XS:
      return BlocksToTiles<WeightFormat::kIQ4_XS>;
    case WeightFormat::kMXFP4:
      return BlocksToTiles<WeightFormat::kMXFP4>;
  }
  return nullptr;
}

}  // namespace
}  // namespace millrace::models
