// y = W x on AVX-512 VNNI: which kernels run, and those of float weights.
// Integer weights: vpdpbusd adds four u8 x s8 products to each 32-bit lane,
// exactly, with the four activations broadcast straight from the quantised row.
// It wants its first operand unsigned: codes are; bytes of Q8_0 are shifted by
// 128 (xor 0x80) and entries of tables likewise. What a shift adds is a
// multiple of Σx and taken off again. All of that is integer and exact, so the
// bits are those of any table.

#include "models/cpu/kernels/avx512vnni/parts.h"
#include "models/cpu/kernels/avx512vnni/work.h"

namespace millrace::models::avx512vnni {
namespace {

constexpr int kMaxFloatTokens = 6;

template <WeightFormat kFormat>
__m512 LoadColumn(const uint8_t* p) {
  if constexpr (kFormat == WeightFormat::kF32) {
    return _mm512_loadu_ps(p);
  } else {
    const __m256i bits =
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    if constexpr (kFormat == WeightFormat::kF16) return _mm512_cvtph_ps(bits);
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }
}

// kTokens tokens x 16 rows, the four strands of k mod 4 side by side.
template <WeightFormat kFormat, int kTokens>
void FloatTile(const Work& work, int64_t g, int64_t token) {
  constexpr int64_t kColumn = Pack16::BlockBytes(kFormat);
  const float* x = work.act.f32 + token * work.act.ld_f32;
  const int64_t ld_x = work.act.ld_f32;
  const uint8_t* w = work.Group(g);
  __m512 acc[kTokens][4];
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) acc[t][j] = _mm512_setzero_ps();
  }
  const auto column = [&](int64_t k, int j) {
    const __m512 v = LoadColumn<kFormat>(w + k * kColumn);
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      acc[t][j] =
          _mm512_fmadd_ps(v, _mm512_set1_ps(x[t * ld_x + k]), acc[t][j]);
    }
  };
  int64_t k = 0;
  for (; k + 4 <= work.w.k; k += 4) {
#pragma GCC unroll 4
    for (int64_t line = 0; line < 4 * kColumn; line += 64) {
      Prefetch(w + k * kColumn + kAhead + line);
    }
    column(k, 0);
    column(k + 1, 1);
    column(k + 2, 2);
    column(k + 3, 3);
  }
  if (k < work.w.k) column(k, 0);
  if (k + 1 < work.w.k) column(k + 1, 1);
  if (k + 2 < work.w.k) column(k + 2, 2);
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
    work.Store(token + t, g,
               _mm512_add_ps(_mm512_add_ps(acc[t][0], acc[t][1]),
                             _mm512_add_ps(acc[t][2], acc[t][3])));
  }
}

template <WeightFormat kFormat>
void Float(const Work& work, int64_t group_begin, int64_t group_end,
           int64_t tokens) {
  static constexpr Tile kTiles[kMaxFloatTokens] = {
      FloatTile<kFormat, 1>, FloatTile<kFormat, 2>, FloatTile<kFormat, 3>,
      FloatTile<kFormat, 4>, FloatTile<kFormat, 5>, FloatTile<kFormat, 6>};
  RunTiles(kTiles, kMaxFloatTokens, work, group_begin, group_end, tokens);
}

}  // namespace

int64_t GroupBytes(WeightFormat format, int64_t k) {
  return Pack16::GroupBytes(format, k);
}

bool PackGroup(WeightFormat format, const void* const* rows, int32_t num_rows,
               int64_t k, void* group) {
  return Pack16::Pack(format, rows, num_rows, k, group);
}

void UnpackRow(const PackedMatrix& w, int64_t row, float* out) {
  Pack16::UnpackRow(w, row, out);
}

void Linear(const PackedMatrix& w, int64_t group_begin, int64_t group_end,
            const ActRows& act, int32_t num_rows, float* y, int64_t ld_y) {
  const Work work{w, act, y, ld_y};
  switch (w.format) {
    case WeightFormat::kF32:
      return Float<WeightFormat::kF32>(work, group_begin, group_end, num_rows);
    case WeightFormat::kF16:
      return Float<WeightFormat::kF16>(work, group_begin, group_end, num_rows);
    case WeightFormat::kBF16:
      return Float<WeightFormat::kBF16>(work, group_begin, group_end, num_rows);
    case WeightFormat::kQ2_K:
    case WeightFormat::kQ3_K:
    case WeightFormat::kQ4_K:
    case WeightFormat::kQ5_K:
    case WeightFormat::kQ6_K:
    case WeightFormat::kIQ4_XS:
      return Linear256(w, group_begin, group_end, act, num_rows, y, ld_y);
    default:
      return Linear32(w, group_begin, group_end, act, num_rows, y, ld_y);
  }
}

}  // namespace millrace::models::avx512vnni
