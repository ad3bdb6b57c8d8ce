// y = W x on AVX-VNNI: integer weights in AVX2's packing, 8 rows x 32 columns a
// block. vpdpbusd adds four u8 x s8 products to each 32-bit lane, exactly, so
// no intermediate 16-bit sum is needed and 8-bit weights run as fast as 4-bit
// ones. Float weights go to AVX2.
//
// Its first operand is unsigned: nibbles are; the bytes of Q8_0 are shifted by
// 128 (xor 0x80) and 128 * Σx is taken off again, as 8 * Σx is for Q4_0. All
// of that is integer and exact, so the bits are those of any table.

#include "models/cpu/kernels/avx2/linear_int.h"
#include "models/cpu/kernels/avx2/parts.h"
#include "models/cpu/kernels/avxvnni/parts.h"

namespace millrace::models::avxvnni {
namespace {

constexpr int64_t kAhead = 2304;         // bytes of prefetch
constexpr int64_t kL2Bytes = 256 << 10;  // weights kept for all token tiles
constexpr int kMaxTokens = 8;            // of a tile

// One block's quants as eight vectors of u8: columns 4j…4j+3 in vector j.
template <WeightFormat kFormat>
inline void UnpackBlock(const uint8_t* p, __m256i w[8]) {
  if constexpr (kFormat == WeightFormat::kQ8_0) {
    const __m256i flip = _mm256_set1_epi8(static_cast<char>(0x80));
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      w[j] = _mm256_xor_si256(LoadQuants(p + 32 * j), flip);
    }
  } else {
    UnpackNibbles(p, w);
  }
}

// kTokens tokens x 8 rows over all blocks.
template <WeightFormat kFormat, int kTokens>
void IntegerTile(const Work& work, int64_t g, int64_t token) {
  constexpr int64_t kBlock = Pack8::BlockBytes(kFormat);
  constexpr int64_t kScales = Pack8::QuantBytes(kFormat);
  const TileActs x = ActsAt(work.act, token, 0);
  const uint8_t* w = work.Group(g);
  const int64_t blocks = work.w.k / 32;
  __m256 acc[kTokens];
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) acc[t] = _mm256_setzero_ps();
  for (int64_t b = 0; b < blocks; ++b, w += kBlock) {
#pragma GCC unroll 8
    for (int64_t line = 0; line < kBlock; line += 64) {
      Prefetch(w + kAhead + line);
    }
    __m256i u[8];
    UnpackBlock<kFormat>(w, u);
    const __m256 d = LoadHalves(w + kScales);
    const __m256 m = kFormat == WeightFormat::kQ4_1
                         ? LoadHalves(w + kScales + Pack8::kMins)
                         : _mm256_setzero_ps();
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      const int8_t* q = x.q + t * x.ld_q + b * 32;
      const int64_t at = t * x.ld_block + b;
      // Two chains of four: eight in a row would show their latency.
      __m256i even = _mm256_setzero_si256();
      __m256i odd = _mm256_setzero_si256();
      if constexpr (kFormat != WeightFormat::kQ4_1) {
        constexpr int kShift = kFormat == WeightFormat::kQ8_0 ? 7 : 3;
        odd = _mm256_sub_epi32(
            odd, _mm256_slli_epi32(_mm256_set1_epi32(x.sum[at]), kShift));
      }
#pragma GCC unroll 4
      for (int j = 0; j < 8; j += 2) {
        even = _mm256_dpbusd_avx_epi32(even, u[j], Broadcast4(q + 4 * j));
        odd = _mm256_dpbusd_avx_epi32(odd, u[j + 1], Broadcast4(q + 4 * j + 4));
      }
      acc[t] = AddBlock<kFormat>(acc[t], _mm256_add_epi32(even, odd), d, m,
                                 x.d + at, x.s + at);
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) work.Store(token + t, g, acc[t]);
}

using Tile = void (*)(const Work&, int64_t g, int64_t token);

// kTiles[i] takes i + 1 tokens.
template <WeightFormat kFormat>
constexpr Tile kTiles[kMaxTokens] = {
    IntegerTile<kFormat, 1>, IntegerTile<kFormat, 2>, IntegerTile<kFormat, 3>,
    IntegerTile<kFormat, 4>, IntegerTile<kFormat, 5>, IntegerTile<kFormat, 6>,
    IntegerTile<kFormat, 7>, IntegerTile<kFormat, 8>};

// Outside in: as many weight rows as fit in L2, token tile, row group.
template <WeightFormat kFormat>
void Integer(const Work& work, int64_t group_begin, int64_t group_end,
             int64_t tokens) {
  int64_t step = kL2Bytes / work.w.group_bytes;
  if (step < 1) step = 1;
  for (int64_t begin = group_begin; begin < group_end; begin += step) {
    const int64_t end = begin + step < group_end ? begin + step : group_end;
    for (int64_t token = 0; token < tokens; token += kMaxTokens) {
      const int64_t left = tokens - token;
      const Tile tile =
          kTiles<kFormat>[(left < kMaxTokens ? left : kMaxTokens) - 1];
      for (int64_t g = begin; g < end; ++g) tile(work, g, token);
    }
  }
}

}  // namespace

void Linear(const PackedMatrix& w, int64_t group_begin, int64_t group_end,
            const ActRows& act, int32_t num_rows, float* y, int64_t ld_y) {
  const Work work{w, act, y, ld_y};
  switch (w.format) {
    case WeightFormat::kQ8_0:
      return Integer<WeightFormat::kQ8_0>(work, group_begin, group_end,
                                          num_rows);
    case WeightFormat::kQ4_0:
      return Integer<WeightFormat::kQ4_0>(work, group_begin, group_end,
                                          num_rows);
    case WeightFormat::kQ4_1:
      return Integer<WeightFormat::kQ4_1>(work, group_begin, group_end,
                                          num_rows);
    default:
      return avx2::Linear(w, group_begin, group_end, act, num_rows, y, ld_y);
  }
}

}  // namespace millrace::models::avxvnni
