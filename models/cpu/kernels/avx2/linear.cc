// y = W x of AVX2, float weights, and the way to the integer ones. Every column
// is a vector of 8 rows.

#include "models/cpu/kernels/avx2/parts.h"
#include "models/cpu/kernels/avx2/work.h"

namespace millrace::models::avx2 {
namespace {

template <WeightFormat kFormat>
__m256 LoadColumn(const uint8_t* p) {
  if constexpr (kFormat == WeightFormat::kF32) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(p));
  } else {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    if constexpr (kFormat == WeightFormat::kF16) return _mm256_cvtph_ps(bits);
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
}

// kTokens tokens x 8 rows, the four strands of k mod 4 side by side.
template <WeightFormat kFormat, int kTokens>
void FloatTile(const Work& work, int64_t g, int64_t token) {
  constexpr int64_t kColumn = Pack8::BlockBytes(kFormat);
  const float* x = work.act.f32 + token * work.act.ld_f32;
  const uint8_t* w = work.Group(g);
  __m256 acc[kTokens][4];
#pragma GCC unroll 4
  for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) acc[t][j] = _mm256_setzero_ps();
  }
  const auto column = [&](int64_t k, int j) {
    const __m256 v = LoadColumn<kFormat>(w + k * kColumn);
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) {
      acc[t][j] = _mm256_fmadd_ps(
          v, _mm256_broadcast_ss(x + t * work.act.ld_f32 + k), acc[t][j]);
    }
  };
  int64_t k = 0;
  for (; k + 4 <= work.w.k; k += 4) {
    Prefetch(w + k * kColumn + 2048);
    if (kColumn > 16) Prefetch(w + k * kColumn + 2048 + 64);
    column(k, 0);
    column(k + 1, 1);
    column(k + 2, 2);
    column(k + 3, 3);
  }
  if (k < work.w.k) column(k, 0);
  if (k + 1 < work.w.k) column(k + 1, 1);
  if (k + 2 < work.w.k) column(k + 2, 2);
#pragma GCC unroll 4
  for (int t = 0; t < kTokens; ++t) {
    work.Store(token + t, g,
               _mm256_add_ps(_mm256_add_ps(acc[t][0], acc[t][1]),
                             _mm256_add_ps(acc[t][2], acc[t][3])));
  }
}

template <WeightFormat kFormat>
void Float(const Work& work, int64_t group_begin, int64_t group_end,
           int64_t tokens) {
  for (int64_t g = group_begin; g < group_end; ++g) {
    int64_t token = 0;
    for (; token + 3 <= tokens; token += 3) {
      FloatTile<kFormat, 3>(work, g, token);
    }
    if (tokens - token == 2) FloatTile<kFormat, 2>(work, g, token);
    if (tokens - token == 1) FloatTile<kFormat, 1>(work, g, token);
  }
}

}  // namespace

int64_t GroupBytes(WeightFormat format, int64_t k) {
  return Pack8::GroupBytes(format, k);
}

bool PackGroup(WeightFormat format, const void* const* rows, int32_t num_rows,
               int64_t k, void* group) {
  return Pack8::Pack(format, rows, num_rows, k, group);
}

void UnpackRow(const PackedMatrix& w, int64_t row, float* out) {
  Pack8::UnpackRow(w, row, out);
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
    default:
      return LinearIntegers(w, group_begin, group_end, act, num_rows, y, ld_y);
  }
}

}  // namespace millrace::models::avx2
