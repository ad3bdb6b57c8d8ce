// y = W x on AVX-VNNI: integer weights in AVX2's packing, 8 rows x 32 columns a
// part. vpdpbusd adds four u8 x s8 products to each 32-bit lane, exactly, so
// no intermediate 16-bit sum is needed and every format runs at one speed but
// for its unpacking. Float weights go to AVX2.
//
// Its first operand is unsigned: what stands for a signed integer is moved up
// by a power of two, and that many times Σx is taken off again. All of that is
// integer and exact, so the bits are those of any table.

#include "models/cpu/kernels/avx2/codes.h"
#include "models/cpu/kernels/avx2/parts.h"
#include "models/cpu/kernels/avx2/scales.h"
#include "models/cpu/kernels/avxvnni/parts.h"

namespace millrace::models::avxvnni {
namespace {

constexpr int64_t kAhead = 8192;  // bytes of prefetch
constexpr int kMaxTokens = 8;     // of a tile

// The scales of half 0 and 1 as 32-bit integers.
struct Factors {
  __m256i of_half[2];
};
template <WeightFormat kFormat>
inline Factors FactorsOf(const PartScales& s) {
  if constexpr (!kHalves<kFormat>) return {};
  return {{_mm256_srai_epi32(_mm256_slli_epi32(s.scale, 16), 16),
           _mm256_srai_epi32(s.scale, 16)}};
}

// Σ code x of a part, by half's scale.
template <WeightFormat kFormat>
[[gnu::always_inline]] inline __m256i Dot(const __m256i w[8],
                                          const Factors& factors,
                                          const int8_t* q) {
  // Two chains of four: eight in a row would show their latency.
  __m256i half[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      half[h] = _mm256_dpbusd_avx_epi32(half[h], w[4 * h + j],
                                        Broadcast4(q + 16 * h + 4 * j));
    }
  }
  if constexpr (kHalves<kFormat>) {
    half[0] = _mm256_mullo_epi32(half[0], factors.of_half[0]);
    half[1] = _mm256_mullo_epi32(half[1], factors.of_half[1]);
  }
  return _mm256_add_epi32(half[0], half[1]);
}

// kTokens tokens x 8 rows over all blocks.
template <WeightFormat kFormat, int kTokens>
void Tile(const Work& work, int64_t g, int64_t token) {
  constexpr int64_t kPart = Pack8::QuantBytes(kFormat);
  constexpr int64_t kPartsAt = Pack8::PartsAt(kFormat);
  constexpr int64_t kBlock = Pack8::BlockBytes(kFormat);
  constexpr int64_t kStride = kBlock / kParts<kFormat>;
  const TileActs x = ActsAt(work.act, token, 0);
  const uint8_t* w = work.Group(g);
  const int64_t blocks = work.w.k / (32 * kParts<kFormat>);
  __m256 acc[kTokens];
#pragma GCC unroll 8
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
      __m256i codes[8];
      UnpackUnsigned<kFormat>(part, codes);
      const Factors factors = FactorsOf<kFormat>(scales[i]);
      const int64_t block = b * kParts<kFormat> + i;
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) {
        const int64_t at = t * x.ld_block + block;
        __m256i isum =
            Dot<kFormat>(codes, factors, x.q + t * x.ld_q + block * 32);
        if constexpr (kLessShift<kFormat> >= 0) {
          isum = _mm256_sub_epi32(isum, TooMuch<kFormat>(scales[i], x, at));
        }
        acc[t] = AddSum<kFormat>(acc[t], isum, scales[i], x, at);
      }
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) work.Store(token + t, g, acc[t]);
}

using TileOf = void (*)(const Work&, int64_t g, int64_t token);

// kTiles[i] takes i + 1 tokens.
template <WeightFormat kFormat>
constexpr TileOf kTiles[kMaxTokens] = {
    Tile<kFormat, 1>, Tile<kFormat, 2>, Tile<kFormat, 3>, Tile<kFormat, 4>,
    Tile<kFormat, 5>, Tile<kFormat, 6>, Tile<kFormat, 7>, Tile<kFormat, 8>};

const TileOf* TilesOf(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
    case WeightFormat::kF16:
    case WeightFormat::kBF16:
      break;
    case WeightFormat::kQ8_0:
      return kTiles<WeightFormat::kQ8_0>;
    case WeightFormat::kQ4_0:
      return kTiles<WeightFormat::kQ4_0>;
    case WeightFormat::kQ4_1:
      return kTiles<WeightFormat::kQ4_1>;
    case WeightFormat::kQ5_0:
      return kTiles<WeightFormat::kQ5_0>;
    case WeightFormat::kQ5_1:
      return kTiles<WeightFormat::kQ5_1>;
    case WeightFormat::kQ2_K:
      return kTiles<WeightFormat::kQ2_K>;
    case WeightFormat::kQ3_K:
      return kTiles<WeightFormat::kQ3_K>;
    case WeightFormat::kQ4_K:
      return kTiles<WeightFormat::kQ4_K>;
    case WeightFormat::kQ5_K:
      return kTiles<WeightFormat::kQ5_K>;
    case WeightFormat::kQ6_K:
      return kTiles<WeightFormat::kQ6_K>;
    case WeightFormat::kIQ4_NL:
      return kTiles<WeightFormat::kIQ4_NL>;
    case WeightFormat::kIQ4_XS:
      return kTiles<WeightFormat::kIQ4_XS>;
    case WeightFormat::kMXFP4:
      return kTiles<WeightFormat::kMXFP4>;
  }
  return nullptr;
}

}  // namespace

// Outside in: token tile, row group.
void Linear(const PackedMatrix& w, int64_t group_begin, int64_t group_end,
            const ActRows& act, int32_t num_rows, float* y, int64_t ld_y) {
  const TileOf* tiles = TilesOf(w.format);
  if (tiles == nullptr) {
    return avx2::Linear(w, group_begin, group_end, act, num_rows, y, ld_y);
  }
  const Work work{w, act, y, ld_y};
  for (int64_t token = 0; token < num_rows; token += kMaxTokens) {
    const int64_t left = num_rows - token;
    const TileOf tile = tiles[(left < kMaxTokens ? left : kMaxTokens) - 1];
    for (int64_t g = group_begin; g < group_end; ++g) tile(work, g, token);
  }
}

}  // namespace millrace::models::avxvnni
