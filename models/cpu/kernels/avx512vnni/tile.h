// Tiles of integer weights: 16 rows x up to 8 tokens over all columns, for
// every format. Unpacked weights stay in eight registers for a tile's tokens.
//
// Sums are exact integers in any order. Where a part's halves have scales of
// their own the integers are taken on in f32: each of dot * scale, their sum
// and what is taken off for shifted codes stays below 2^24 in magnitude, so no
// step rounds. For linear*.cc alone.
#pragma once

#include "models/cpu/kernels/avx512vnni/scales.h"

namespace millrace::models {
namespace {

constexpr int kMaxTokens = 8;

template <WeightFormat kFormat>
inline void PrefetchPart(const uint8_t* part) {
  constexpr int64_t kBytes = Pack16::BlockBytes(kFormat) / kParts<kFormat>;
#pragma GCC unroll 9
  for (int64_t line = 0; line < kBytes; line += 64) {
    Prefetch(part + kAhead + line);
  }
}

// One part for tokens with one scale: acc = fma(isum, d * dx, acc), then the
// minimum.
template <WeightFormat kFormat, int kTokens>
inline void AddPart(const __m512i u[8], const Scales16<kFormat>& s, int part,
                    const ActRows& act, const int8_t* q, int64_t at,
                    __m512 acc[kTokens]) {
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
    const int8_t* x = q + t * act.ld_q;
    const int64_t block = at + t * act.ld_block;
    // Two chains of four: eight in a row would show their latency.
    __m512i even = _mm512_setzero_si512();
    __m512i odd = _mm512_setzero_si512();
    if constexpr (kShift<kFormat> != 0) {
      odd = MinusTimes<kShift<kFormat>>(act.sum[block]);
    }
#pragma GCC unroll 4
    for (int j = 0; j < 8; j += 2) {
      even = Dot4(even, u[j], x + 4 * j);
      odd = Dot4(odd, u[j + 1], x + 4 * j + 4);
    }
    const __m512 isum = _mm512_cvtepi32_ps(_mm512_add_epi32(even, odd));
    acc[t] = _mm512_fmadd_ps(
        isum, _mm512_mul_ps(s.d[part], _mm512_set1_ps(act.d[block])), acc[t]);
    if constexpr (HasMin(kFormat)) {
      acc[t] = _mm512_fmadd_ps(s.m[part], _mm512_set1_ps(act.s[block]), acc[t]);
    }
  }
}

// One part for tokens with a scale for each half.
template <WeightFormat kFormat, int kTokens>
inline void AddPart(const __m512i u[8], const HalfScales16<kFormat>& s,
                    int part, const ActRows& act, const int8_t* q, int64_t at,
                    __m512 acc[kTokens]) {
  using S = HalfScales16<kFormat>;
  constexpr int32_t kOff = kShift<kFormat>;
  const __m512i pair = S::Pair(s.words, part);
  const __m512 scale0 =
      _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(pair, 16), 16));
  const __m512 scale1 = _mm512_cvtepi32_ps(_mm512_srai_epi32(pair, 16));
  const __m512i off = kFormat == WeightFormat::kQ2_K
                          ? S::Pair(s.mins, part)
                          : _mm512_mullo_epi16(pair, _mm512_set1_epi16(kOff));
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
    const int8_t* x = q + t * act.ld_q;
    const int64_t block = at + t * act.ld_block;
    __m512i half0 = _mm512_setzero_si512();
    __m512i half1 = _mm512_setzero_si512();
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      half0 = Dot4(half0, u[j], x + 4 * j);
      half1 = Dot4(half1, u[j + 4], x + 4 * j + 16);
    }
    const __m512 dot0 = _mm512_cvtepi32_ps(half0);
    const __m512 dot1 = _mm512_cvtepi32_ps(half1);
    // Q2_K's minima; else what the codes' shift added.
    const __m512 less = _mm512_cvtepi32_ps(DotPair(off, act.half + 2 * block));
    const __m512 dx = _mm512_set1_ps(act.d[block]);
    if constexpr (kFormat == WeightFormat::kQ2_K) {
      const __m512 isum =
          _mm512_fmadd_ps(dot1, scale1, _mm512_mul_ps(dot0, scale0));
      acc[t] = _mm512_fmadd_ps(isum, _mm512_mul_ps(s.d, dx), acc[t]);
      acc[t] = _mm512_fnmadd_ps(less, _mm512_mul_ps(s.dmin, dx), acc[t]);
    } else {
      const __m512 isum =
          _mm512_fmadd_ps(dot1, scale1, _mm512_fmsub_ps(dot0, scale0, less));
      acc[t] = _mm512_fmadd_ps(isum, _mm512_mul_ps(s.d, dx), acc[t]);
    }
  }
}

template <WeightFormat kFormat, int kTokens>
void IntegerTile(const Work& work, int64_t g, int64_t token) {
  constexpr int64_t kBlock = Pack16::BlockBytes(kFormat);
  constexpr int64_t kPartBytes = Pack16::QuantBytes(kFormat);
  const ActRows& act = work.act;
  const int8_t* q = act.q + token * act.ld_q;
  int64_t at = token * act.ld_block;
  const uint8_t* w = work.Group(g);
  __m512 acc[kTokens];
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) acc[t] = _mm512_setzero_ps();
  for (const uint8_t* end = w + work.w.k / ShapeOf(kFormat).columns * kBlock;
       w < end; w += kBlock) {
    ScalesOf<kFormat> scales;
    Load(w, scales);
    const uint8_t* p = w + Pack16::PartsAt(kFormat);
#pragma GCC unroll 1
    for (int part = 0; part < kParts<kFormat>; ++part) {
      PrefetchPart<kFormat>(w + part * (kBlock / kParts<kFormat>));
      __m512i u[8];
      UnpackCodes<kFormat>(p, u);
      AddPart<kFormat, kTokens>(u, scales, part, act, q, at, acc);
      p += kPartBytes;
      q += 32;
      ++at;
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) work.Store(token + t, g, acc[t]);
}

template <WeightFormat kFormat>
void Integer(const Work& work, int64_t group_begin, int64_t group_end,
             int64_t tokens) {
  static constexpr Tile kTiles[kMaxTokens] = {
      IntegerTile<kFormat, 1>, IntegerTile<kFormat, 2>, IntegerTile<kFormat, 3>,
      IntegerTile<kFormat, 4>, IntegerTile<kFormat, 5>, IntegerTile<kFormat, 6>,
      IntegerTile<kFormat, 7>, IntegerTile<kFormat, 8>};
  RunTiles(kTiles, kMaxTokens, work, group_begin, group_end, tokens);
}

}  // namespace
}  // namespace millrace::models
