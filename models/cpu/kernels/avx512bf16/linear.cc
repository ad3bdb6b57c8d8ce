// y = W x for BF16 weights and BF16 rows: vdpbf16ps adds two products to each
// lane, twice the work of an f32 fma, and the weights need no conversion. Its
// packing is [pair of columns][16 rows][2], an odd last column beside a zero.
// Every other format goes to the AVX-512 VNNI table.

#include <immintrin.h>

#include "models/cpu/kernels/avx512bf16/parts.h"
#include "models/cpu/kernels/avx512vnni/parts.h"

namespace millrace::models::avx512bf16 {
namespace {

constexpr int64_t kRows = 16;
constexpr int64_t kPairBytes = 64;  // of one pair of columns
constexpr int64_t kAhead = 8192;    // bytes of prefetch
constexpr int kMaxTokens = 6;       // of a tile: 24 sums, 4 weights

// A pair of activations, read wherever it stands.
using PairAnywhere = int32_t __attribute__((may_alias, aligned(1)));

// acc = fma(w1, x1, acc); acc = fma(w0, x0, acc). Assembly because g++ 12 does
// not fold the broadcast into the instruction.
inline __m512 Dot2(__m512 acc, __m512i w, const uint16_t* x) {
  asm("vdpbf16ps %[x]%{1to16%}, %[w], %[acc]"
      : [acc] "+v"(acc)
      : [w] "v"(w), [x] "m"(*reinterpret_cast<const PairAnywhere*>(x)));
  return acc;
}

// kTokens tokens x 16 rows, the four strands of pairs mod 4 side by side.
template <int kTokens>
void PairTile(const PackedMatrix& matrix, const ActRows& act, int64_t g,
              int64_t token, float* y, int64_t ld_y) {
  const uint16_t* x = act.bf16 + token * act.ld_bf16;
  const int64_t ld_x = act.ld_bf16;
  const auto* w =
      static_cast<const uint8_t*>(matrix.data) + g * matrix.group_bytes;
  __m512 acc[kTokens][4];
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) acc[t][j] = _mm512_setzero_ps();
  }
  const auto pair = [&](int64_t p, int j) {
    const __m512i v = _mm512_loadu_si512(w + p * kPairBytes);
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      acc[t][j] = Dot2(acc[t][j], v, x + t * ld_x + 2 * p);
    }
  };
  const int64_t pairs = (matrix.k + 1) / 2;
  int64_t p = 0;
  for (; p + 4 <= pairs; p += 4) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      _mm_prefetch(
          reinterpret_cast<const char*>(w + (p + j) * kPairBytes + kAhead),
          _MM_HINT_T0);
      pair(p + j, j);
    }
  }
  if (p < pairs) pair(p, 0);
  if (p + 1 < pairs) pair(p + 1, 1);
  if (p + 2 < pairs) pair(p + 2, 2);
  const int64_t left = matrix.n - g * kRows;
  const auto live = static_cast<__mmask16>(
      left >= kRows ? 0xffffu : (1u << static_cast<unsigned>(left)) - 1);
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
    _mm512_mask_storeu_ps(y + (token + t) * ld_y + g * kRows, live,
                          _mm512_add_ps(_mm512_add_ps(acc[t][0], acc[t][1]),
                                        _mm512_add_ps(acc[t][2], acc[t][3])));
  }
}

using Tile = void (*)(const PackedMatrix& matrix, const ActRows& act, int64_t g,
                      int64_t token, float* y, int64_t ld_y);
// kTiles[i] takes i + 1 tokens.
constexpr Tile kTiles[kMaxTokens] = {PairTile<1>, PairTile<2>, PairTile<3>,
                                     PairTile<4>, PairTile<5>, PairTile<6>};

}  // namespace

int64_t GroupBytes(WeightFormat format, int64_t k) {
  if (format != WeightFormat::kBF16) return avx512vnni::GroupBytes(format, k);
  return (k + 1) / 2 * kPairBytes;
}

bool PackGroup(WeightFormat format, const void* const* rows, int32_t num_rows,
               int64_t k, void* group) {
  if (format != WeightFormat::kBF16) {
    return avx512vnni::PackGroup(format, rows, num_rows, k, group);
  }
  auto* out = static_cast<uint8_t*>(group);
  __builtin_memset(out, 0, static_cast<size_t>(GroupBytes(format, k)));
  for (int32_t r = 0; r < num_rows; ++r) {
    const auto* row = static_cast<const uint8_t*>(rows[r]);
    for (int64_t i = 0; i < k; ++i) {
      __builtin_memcpy(out + (i / 2 * kRows + r) * 4 + i % 2 * 2, row + 2 * i,
                       2);
    }
  }
  return true;
}

void UnpackRow(const PackedMatrix& w, int64_t row, float* out) {
  if (w.format != WeightFormat::kBF16)
    return avx512vnni::UnpackRow(w, row, out);
  const auto* p =
      static_cast<const uint8_t*>(w.data) + row / kRows * w.group_bytes;
  for (int64_t i = 0; i < w.k; ++i) {
    uint16_t bits;
    __builtin_memcpy(&bits, p + (i / 2 * kRows + row % kRows) * 4 + i % 2 * 2,
                     2);
    out[i] = __builtin_bit_cast(float, uint32_t{bits} << 16);
  }
}

void Linear(const PackedMatrix& w, int64_t group_begin, int64_t group_end,
            const ActRows& act, int32_t num_rows, float* y, int64_t ld_y) {
  if (w.format != WeightFormat::kBF16) {
    return avx512vnni::Linear(w, group_begin, group_end, act, num_rows, y,
                              ld_y);
  }
  // Outside in: token tile, row group.
  for (int64_t token = 0; token < num_rows; token += kMaxTokens) {
    const int64_t left = num_rows - token;
    const Tile tile = kTiles[(left < kMaxTokens ? left : kMaxTokens) - 1];
    for (int64_t g = group_begin; g < group_end; ++g) {
      tile(w, act, g, token, y, ld_y);
    }
  }
}

void RoundRow(const float* x, int64_t k, uint16_t* out) {
  for (int64_t i = 0; i < k; i += 16) {
    const int64_t left = k - i;
    const auto live = static_cast<__mmask16>(
        left >= 16 ? 0xffffu : (1u << static_cast<unsigned>(left)) - 1);
    const __m512 v = _mm512_maskz_loadu_ps(live, x + i);
    // An odd last value gets a zero for company.
    const auto pairs = static_cast<__mmask16>(live | (live << 1 & 0xaaaa));
    _mm256_mask_storeu_epi16(out + i, pairs,
                             reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(v)));
  }
}

}  // namespace millrace::models::avx512bf16
