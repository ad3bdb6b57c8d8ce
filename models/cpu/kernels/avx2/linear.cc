// y = W x on AVX2: which tile kernel runs over which rows and tokens. Up to 3
// tokens stream the weights (GEMV, bound by memory); 4-bit weights with more
// tokens go through panels, 8-bit ones through tiles of 4.
//
// Loops, outside in: as many weight rows as fit in L2, token tile, panel of
// blocks, row group. Every output keeps its one chain over ascending blocks:
// it is parked in y between panels, which changes no bit.

#include "models/cpu/kernels/avx2/linear_int.h"
#include "models/cpu/kernels/avx2/parts.h"
#include "models/cpu/kernels/avx2/work.h"

namespace millrace::models::avx2 {
namespace {

constexpr int64_t kL2Bytes = 256 << 10;  // weights kept for all token tiles

template <WeightFormat kFormat, int kTokens>
void Gemv(const Work& work, int64_t begin, int64_t end, int64_t token) {
  const TileActs x = ActsAt(work.act, token, 0);
  for (int64_t g = begin; g < end; ++g) {
    __m256 acc[kTokens];
    GemvTile<kFormat, kTokens>(work.Group(g), work.w.k / 32, x, acc);
    for (int t = 0; t < kTokens; ++t) work.Store(token + t, g, acc[t]);
  }
}

template <WeightFormat kFormat, int kTokens>
void Panel(const Work& work, int64_t begin, int64_t end, int64_t token) {
  constexpr int64_t kBlocks = kPanelBlocks<kTokens>;
  Spread panel[kTokens * kBlocks];
  const int64_t blocks = work.w.k / 32;
  for (int64_t b = 0; b < blocks; b += kBlocks) {
    const int64_t count = blocks - b < kBlocks ? blocks - b : kBlocks;
    const TileActs x = ActsAt(work.act, token, b);
    FillPanel<kTokens>(x, count, panel);
    for (int64_t g = begin; g < end; ++g) {
      __m256 acc[kTokens];
      for (int t = 0; t < kTokens; ++t) {
        acc[t] = b == 0 ? _mm256_setzero_ps() : work.Load(token + t, g);
      }
      const uint8_t* w = work.Group(g) + b * Pack8::BlockBytes(kFormat);
      PanelTile<kFormat, kTokens>(w, count, work.w.group_bytes, panel, x, acc);
      for (int t = 0; t < kTokens; ++t) work.Store(token + t, g, acc[t]);
    }
  }
}

template <WeightFormat kFormat>
void Few(const Work& work, int64_t begin, int64_t end, int64_t token,
         int64_t tokens) {
  if (tokens == 1) Gemv<kFormat, 1>(work, begin, end, token);
  if (tokens == 2) Gemv<kFormat, 2>(work, begin, end, token);
  if (tokens == 3) Gemv<kFormat, 3>(work, begin, end, token);
}

template <WeightFormat kFormat>
void Integer(const Work& work, int64_t group_begin, int64_t group_end,
             int64_t tokens) {
  int64_t step = kL2Bytes / work.w.group_bytes;
  if (step < 1) step = 1;
  for (int64_t begin = group_begin; begin < group_end; begin += step) {
    const int64_t end = begin + step < group_end ? begin + step : group_end;
    int64_t token = 0;
    if constexpr (kFormat == WeightFormat::kQ8_0) {
      for (; token + 4 <= tokens; token += 4) {
        Gemv<kFormat, 4>(work, begin, end, token);
      }
    } else {
      for (; token + kPanelTokens <= tokens; token += kPanelTokens) {
        Panel<kFormat, kPanelTokens>(work, begin, end, token);
      }
      for (; token + 4 <= tokens; token += 4) {
        Panel<kFormat, 4>(work, begin, end, token);
      }
    }
    Few<kFormat>(work, begin, end, token, tokens - token);
  }
}

// ---- float weights ----

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
  if (format > WeightFormat::kQ4_1) return false;  // the scalar table's
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
      return;
  }
}

}  // namespace millrace::models::avx2
