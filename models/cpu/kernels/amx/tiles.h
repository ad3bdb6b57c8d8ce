// y = W x in tiles, AMX's two-dimensional registers of up to 16 rows x 64
// bytes. Written once over a type `Tiles`: the instructions of the CPU
// (linear.cc), or a plain emulation of them in a test.
//
// A tile product adds A[m][4k…4k+3] . B[k][4n…4n+3] to C[m][n]. The packing of
// 16 rows is already B: vector j of a part holds columns 4j…4j+3 of every row,
// and a pair of BF16 columns is four bytes too. A is the activations as they
// lie, a token a row.
//
//   int8   a part of 32 columns is 8 rows of B; its sums become the chain of
//          kernels.h at once, in AVX-512. 16 tokens at a time
//   bf16   32 columns are 16 rows of B; sums stay in C until the row's end,
//          four groups beside each other to hide the latency of a product
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "models/cpu/kernels/amx/bf16_panels.h"
#include "models/cpu/kernels/packing.h"

namespace millrace::models {
namespace {

using Pack16 = Packing<16>;

constexpr int kTileGroups = 4;

inline __m512 LoadHalves16(const uint8_t* p) {
  return _mm512_cvtph_ps(
      _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

// ---- int8: Q8_0, Q4_0, Q4_1; exactly 16 tokens ----

// 16 tokens x 16 rows, all columns. C is tile 0, A tile 1, B tile 2.
template <WeightFormat kFormat, typename Tiles>
void IntegerTile(Tiles& tiles, const PackedMatrix& matrix, const ActRows& act,
                 int64_t g, int64_t token, float* y, int64_t ld_y) {
  constexpr int64_t kBlock = Pack16::BlockBytes(kFormat);
  constexpr int64_t kScales = Pack16::FieldAt(kFormat, 0);
  constexpr int64_t kMins = kScales + Pack16::kMins;
  alignas(64) uint8_t unpacked[8 * 64];
  alignas(64) int32_t sums[kTileTokens * 16];
  const auto* w =
      static_cast<const uint8_t*>(matrix.data) + g * matrix.group_bytes;
  __m512 acc[kTileTokens];
#pragma GCC unroll 16
  for (int t = 0; t < kTileTokens; ++t) acc[t] = _mm512_setzero_ps();
  for (int64_t b = 0; b < matrix.k / 32; ++b, w += kBlock) {
    tiles.template Zero<0>();
    tiles.template Load<1>(act.q + token * act.ld_q + b * 32, act.ld_q);
    if constexpr (kFormat == WeightFormat::kQ8_0) {
      tiles.template Load<2>(w, 64);
      tiles.template DotSignedSigned<0, 1, 2>();
    } else {
      const __m512i low = _mm512_set1_epi8(15);
      for (int j = 0; j < 4; ++j) {
        const __m512i q = _mm512_loadu_si512(w + 64 * j);
        _mm512_store_si512(unpacked + 64 * j, _mm512_and_si512(q, low));
        _mm512_store_si512(unpacked + 64 * (j + 4),
                           _mm512_and_si512(_mm512_srli_epi16(q, 4), low));
      }
      tiles.template Load<2>(unpacked, 64);
      tiles.template DotSignedUnsigned<0, 1, 2>();
    }
    tiles.template Store<0>(sums, 64);
    const __m512 d = LoadHalves16(w + kScales);
    const __m512 m =
        HasMin(kFormat) ? LoadHalves16(w + kMins) : _mm512_setzero_ps();
#pragma GCC unroll 16
    for (int t = 0; t < kTileTokens; ++t) {
      const int64_t at = (token + t) * act.ld_block + b;
      __m512i isum = _mm512_load_si512(sums + 16 * t);
      if constexpr (kFormat == WeightFormat::kQ4_0) {
        isum = _mm512_sub_epi32(
            isum, _mm512_slli_epi32(_mm512_set1_epi32(act.sum[at]), 3));
      }
      acc[t] =
          _mm512_fmadd_ps(_mm512_cvtepi32_ps(isum),
                          _mm512_mul_ps(d, _mm512_set1_ps(act.d[at])), acc[t]);
      if constexpr (HasMin(kFormat)) {
        acc[t] = _mm512_fmadd_ps(m, _mm512_set1_ps(act.s[at]), acc[t]);
      }
    }
  }
  const int64_t left = matrix.n - g * 16;
  const auto live = static_cast<__mmask16>(
      left >= 16 ? 0xffffu : (1u << static_cast<unsigned>(left)) - 1);
#pragma GCC unroll 16
  for (int t = 0; t < kTileTokens; ++t) {
    _mm512_mask_storeu_ps(y + (token + t) * ld_y + g * 16, live, acc[t]);
  }
}

// The whole tiles of tokens; returns how many tokens that were.
template <WeightFormat kFormat, typename Tiles>
int32_t IntegerTiles(Tiles& tiles, const PackedMatrix& w, int64_t group_begin,
                     int64_t group_end, const ActRows& act, int32_t num_rows,
                     float* y, int64_t ld_y) {
  const int32_t whole = num_rows / kTileTokens * kTileTokens;
  if (whole == 0) return 0;
  TileConfig config;
  config.Shape(0, kTileTokens, 64);
  config.Shape(1, kTileTokens, 32);
  config.Shape(2, 8, 64);
  tiles.Configure(config);
  for (int64_t g = group_begin; g < group_end; ++g) {
    for (int32_t token = 0; token < whole; token += kTileTokens) {
      IntegerTile<kFormat>(tiles, w, act, g, token, y, ld_y);
    }
  }
  tiles.Release();
  return whole;
}

// The quantised rows from `first` on.
inline ActRows RowsFrom(const ActRows& act, int64_t first) {
  ActRows rest = act;
  rest.q += first * act.ld_q;
  rest.d += first * act.ld_block;
  rest.s += first * act.ld_block;
  rest.sum += first * act.ld_block;
  rest.half += 2 * first * act.ld_block;
  return rest;
}

// ---- bf16: any number of tokens, for all must follow one chain ----

// Up to 16 tokens x kGroups groups. C is tiles 0 to 3, A tile 4, B tile 5.
template <int kGroups, typename Tiles>
void Bf16Tile(Tiles& tiles, const PackedMatrix& matrix, const ActRows& act,
              int64_t g, int64_t token, int tokens, float* y, int64_t ld_y) {
  constexpr int64_t kStep = 16 * 64;  // bytes of 32 columns of a group
  const uint16_t* x = act.bf16 + token * act.ld_bf16;
  const auto* w =
      static_cast<const uint8_t*>(matrix.data) + g * matrix.group_bytes;
  const auto multiply = [&](const uint8_t* from, int64_t stride) {
    tiles.template Load<5>(from, 64);
    tiles.template DotBf16<0, 4, 5>();
    if constexpr (kGroups == kTileGroups) {
      tiles.template Load<5>(from + stride, 64);
      tiles.template DotBf16<1, 4, 5>();
      tiles.template Load<5>(from + 2 * stride, 64);
      tiles.template DotBf16<2, 4, 5>();
      tiles.template Load<5>(from + 3 * stride, 64);
      tiles.template DotBf16<3, 4, 5>();
    }
  };
  tiles.template Zero<0>();
  tiles.template Zero<1>();
  tiles.template Zero<2>();
  tiles.template Zero<3>();
  const int64_t steps = matrix.k / 32;
  for (int64_t i = 0; i < steps; ++i) {
    tiles.template Load<4>(x + 32 * i, 2 * act.ld_bf16);
    multiply(w + kStep * i, matrix.group_bytes);
  }
  // The last columns, beside zeros.
  if (const int64_t left = matrix.k - 32 * steps; left > 0) {
    alignas(64) uint16_t last_x[kTileTokens * 32] = {};
    alignas(64) uint8_t last_w[kGroups * kStep] = {};
    const auto pairs = static_cast<size_t>((left + 1) / 2);
    for (int t = 0; t < tokens; ++t) {
      __builtin_memcpy(last_x + 32 * t, x + t * act.ld_bf16 + 32 * steps,
                       4 * pairs);
    }
    for (int i = 0; i < kGroups; ++i) {
      __builtin_memcpy(last_w + kStep * i,
                       w + i * matrix.group_bytes + kStep * steps, 64 * pairs);
    }
    tiles.template Load<4>(last_x, 64);
    multiply(last_w, kStep);
  }
  alignas(64) float sums[kGroups * kTileTokens * 16];
  tiles.template Store<0>(sums, 64);
  if constexpr (kGroups == kTileGroups) {
    tiles.template Store<1>(sums + kTileTokens * 16, 64);
    tiles.template Store<2>(sums + 2 * kTileTokens * 16, 64);
    tiles.template Store<3>(sums + 3 * kTileTokens * 16, 64);
  }
  for (int i = 0; i < kGroups; ++i) {
    const int64_t first = (g + i) * 16;
    const int64_t left = matrix.n - first;
    const auto live = static_cast<__mmask16>(
        left >= 16 ? 0xffffu : (1u << static_cast<unsigned>(left)) - 1);
    for (int t = 0; t < tokens; ++t) {
      _mm512_mask_storeu_ps(y + (token + t) * ld_y + first, live,
                            _mm512_load_ps(sums + (i * kTileTokens + t) * 16));
    }
  }
}

template <typename Tiles>
void Bf16Tiles(Tiles& tiles, const PackedMatrix& w, int64_t group_begin,
               int64_t group_end, const ActRows& act, int32_t num_rows,
               float* y, int64_t ld_y) {
  for (int32_t token = 0; token < num_rows; token += kTileTokens) {
    const int tokens =
        num_rows - token < kTileTokens ? num_rows - token : kTileTokens;
    TileConfig config;
    for (int c = 0; c < kTileGroups; ++c) config.Shape(c, tokens, 64);
    config.Shape(4, tokens, 64);
    config.Shape(5, 16, 64);
    tiles.Configure(config);
    int64_t g = group_begin;
    for (; g + kTileGroups <= group_end; g += kTileGroups) {
      Bf16Tile<kTileGroups>(tiles, w, act, g, token, tokens, y, ld_y);
    }
    for (; g < group_end; ++g) {
      Bf16Tile<1>(tiles, w, act, g, token, tokens, y, ld_y);
    }
  }
  if (num_rows > 0) tiles.Release();
}

// What has tiles; returns how many rows are done.
template <typename Tiles>
int32_t RunTiles(Tiles& tiles, const PackedMatrix& w, int64_t group_begin,
                 int64_t group_end, const ActRows& act, int32_t num_rows,
                 float* y, int64_t ld_y) {
  switch (w.format) {
    case WeightFormat::kBF16:
      Bf16Tiles(tiles, w, group_begin, group_end, act, num_rows, y, ld_y);
      return num_rows;
    case WeightFormat::kQ8_0:
      return IntegerTiles<WeightFormat::kQ8_0>(tiles, w, group_begin, group_end,
                                               act, num_rows, y, ld_y);
    case WeightFormat::kQ4_0:
      return IntegerTiles<WeightFormat::kQ4_0>(tiles, w, group_begin, group_end,
                                               act, num_rows, y, ld_y);
    case WeightFormat::kQ4_1:
      return IntegerTiles<WeightFormat::kQ4_1>(tiles, w, group_begin, group_end,
                                               act, num_rows, y, ld_y);
    default:
      return 0;
  }
}

}  // namespace
}  // namespace millrace::models
