// y = W x on AVX-512 VNNI. One block is 16 rows x 32 columns; vpdpbusd adds
// four u8 x s8 products to each 32-bit lane, exactly, with the four activations
// broadcast straight from the quantised row. Unpacked weights stay in eight
// registers for a tile of tokens.
//
// vpdpbusd wants its first operand unsigned: nibbles are; the bytes of Q8_0 are
// shifted by 128 (xor 0x80) and 128 * Σx is taken off again, as 8 * Σx is for
// Q4_0. All of that is integer and exact, so the bits are those of any table.

#include <immintrin.h>

#include "models/cpu/kernels/avx512vnni/parts.h"
#include "models/cpu/kernels/packing.h"

namespace millrace::models::avx512vnni {
namespace {

using Pack16 = Packing<16>;

constexpr int64_t kAhead = 2048;         // bytes of prefetch
constexpr int64_t kL2Bytes = 384 << 10;  // weights kept for all token tiles
constexpr int kMaxTokens = 8;            // of an integer tile
constexpr int kMaxFloatTokens = 6;

// Reads of four activations at once, wherever they stand.
using Int32Anywhere = int32_t __attribute__((may_alias, aligned(1)));

// acc += w . x[0…3] in each lane. Assembly because g++ 12 does not fold the
// broadcast into the instruction.
inline __m512i Dot4(__m512i acc, __m512i w, const int8_t* x) {
  asm("vpdpbusd %[x]%{1to16%}, %[w], %[acc]"
      : [acc] "+v"(acc)
      : [w] "v"(w), [x] "m"(*reinterpret_cast<const Int32Anywhere*>(x)));
  return acc;
}

inline __m512 LoadHalves(const uint8_t* p) {
  return _mm512_cvtph_ps(
      _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline void Prefetch(const uint8_t* p) {
  _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0);
}

struct Work {
  const PackedMatrix& w;
  const ActRows& act;
  float* y;
  int64_t ld_y;

  const uint8_t* Group(int64_t g) const {
    return static_cast<const uint8_t*>(w.data) + g * w.group_bytes;
  }
  // The outputs of a group for a token; the last group may be partial.
  void Store(int64_t token, int64_t g, __m512 v) const {
    float* out = y + token * ld_y + g * 16;
    if (g * 16 + 16 <= w.n) {
      _mm512_storeu_ps(out, v);
    } else {
      const auto rows = static_cast<unsigned>(w.n - g * 16);
      _mm512_mask_storeu_ps(out, static_cast<__mmask16>((1u << rows) - 1), v);
    }
  }
};

// One block's quants as eight vectors of u8: columns 4j…4j+3 in vector j.
template <WeightFormat kFormat>
inline void UnpackBlock(const uint8_t* p, __m512i w[8]) {
  if constexpr (kFormat == WeightFormat::kQ8_0) {
    const __m512i flip = _mm512_set1_epi8(static_cast<char>(0x80));
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      w[j] = _mm512_xor_si512(_mm512_loadu_si512(p + 64 * j), flip);
    }
  } else {
    const __m512i low = _mm512_set1_epi8(15);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const __m512i q = _mm512_loadu_si512(p + 64 * j);
      w[j] = _mm512_and_si512(q, low);
      w[j + 4] = _mm512_and_si512(_mm512_srli_epi16(q, 4), low);
    }
  }
}

// kTokens tokens x 16 rows over all blocks.
template <WeightFormat kFormat, int kTokens>
void IntegerTile(const Work& work, int64_t g, int64_t token) {
  constexpr int64_t kBlock = Pack16::BlockBytes(kFormat);
  constexpr int64_t kScales = Pack16::QuantBytes(kFormat);
  const ActRows& act = work.act;
  const int8_t* q = act.q + token * act.ld_q;
  const int64_t first = token * act.ld_block;
  const uint8_t* w = work.Group(g);
  const int64_t blocks = work.w.k / 32;
  __m512 acc[kTokens];
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) acc[t] = _mm512_setzero_ps();
  for (int64_t b = 0; b < blocks; ++b, w += kBlock, q += 32) {
#pragma GCC unroll 9
    for (int64_t line = 0; line < kBlock; line += 64) {
      Prefetch(w + kAhead + line);
    }
    __m512i u[8];
    UnpackBlock<kFormat>(w, u);
    const __m512 d = LoadHalves(w + kScales);
    const __m512 m = kFormat == WeightFormat::kQ4_1
                         ? LoadHalves(w + kScales + Pack16::kMins)
                         : _mm512_setzero_ps();
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      const int8_t* x = q + t * act.ld_q;
      const int64_t at = first + t * act.ld_block + b;
      // Two chains of four: eight in a row would show their latency.
      __m512i even = _mm512_setzero_si512();
      __m512i odd = _mm512_setzero_si512();
      if constexpr (kFormat != WeightFormat::kQ4_1) {
        constexpr int kShift = kFormat == WeightFormat::kQ8_0 ? 7 : 3;
        odd = _mm512_sub_epi32(
            odd, _mm512_slli_epi32(_mm512_set1_epi32(act.sum[at]), kShift));
      }
#pragma GCC unroll 4
      for (int j = 0; j < 8; j += 2) {
        even = Dot4(even, u[j], x + 4 * j);
        odd = Dot4(odd, u[j + 1], x + 4 * j + 4);
      }
      const __m512 isum = _mm512_cvtepi32_ps(_mm512_add_epi32(even, odd));
      acc[t] = _mm512_fmadd_ps(
          isum, _mm512_mul_ps(d, _mm512_set1_ps(act.d[at])), acc[t]);
      if constexpr (kFormat == WeightFormat::kQ4_1) {
        acc[t] = _mm512_fmadd_ps(m, _mm512_set1_ps(act.s[at]), acc[t]);
      }
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) work.Store(token + t, g, acc[t]);
}

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

// ---- which tile runs where ----

using Tile = void (*)(const Work&, int64_t g, int64_t token);

template <WeightFormat kFormat>
constexpr Tile kIntegerTiles[kMaxTokens] = {
    IntegerTile<kFormat, 1>, IntegerTile<kFormat, 2>, IntegerTile<kFormat, 3>,
    IntegerTile<kFormat, 4>, IntegerTile<kFormat, 5>, IntegerTile<kFormat, 6>,
    IntegerTile<kFormat, 7>, IntegerTile<kFormat, 8>};

template <WeightFormat kFormat>
constexpr Tile kFloatTiles[kMaxFloatTokens] = {
    FloatTile<kFormat, 1>, FloatTile<kFormat, 2>, FloatTile<kFormat, 3>,
    FloatTile<kFormat, 4>, FloatTile<kFormat, 5>, FloatTile<kFormat, 6>};

// tiles[i] takes i + 1 tokens. Outside in: as many weight rows as fit in L2,
// token tile, row group.
void RunTiles(const Tile* tiles, int max_tokens, const Work& work,
              int64_t group_begin, int64_t group_end, int64_t tokens) {
  int64_t step = kL2Bytes / work.w.group_bytes;
  if (step < 1) step = 1;
  for (int64_t begin = group_begin; begin < group_end; begin += step) {
    const int64_t end = begin + step < group_end ? begin + step : group_end;
    for (int64_t token = 0; token < tokens; token += max_tokens) {
      const int64_t left = tokens - token;
      const Tile tile = tiles[(left < max_tokens ? left : max_tokens) - 1];
      for (int64_t g = begin; g < end; ++g) tile(work, g, token);
    }
  }
}

}  // namespace

int64_t GroupBytes(WeightFormat format, int64_t k) {
  return Pack16::GroupBytes(format, k);
}

bool PackGroup(WeightFormat format, const void* const* rows, int32_t num_rows,
               int64_t k, void* group) {
  if (format > WeightFormat::kQ4_1) return false;  // the scalar table's
  return Pack16::Pack(format, rows, num_rows, k, group);
}

void UnpackRow(const PackedMatrix& w, int64_t row, float* out) {
  Pack16::UnpackRow(w, row, out);
}

void Linear(const PackedMatrix& w, int64_t group_begin, int64_t group_end,
            const ActRows& act, int32_t num_rows, float* y, int64_t ld_y) {
  const Work work{w, act, y, ld_y};
  const auto run = [&](const Tile* tiles, int max_tokens) {
    RunTiles(tiles, max_tokens, work, group_begin, group_end, num_rows);
  };
  switch (w.format) {
    case WeightFormat::kF32:
      return run(kFloatTiles<WeightFormat::kF32>, kMaxFloatTokens);
    case WeightFormat::kF16:
      return run(kFloatTiles<WeightFormat::kF16>, kMaxFloatTokens);
    case WeightFormat::kBF16:
      return run(kFloatTiles<WeightFormat::kBF16>, kMaxFloatTokens);
    case WeightFormat::kQ8_0:
      return run(kIntegerTiles<WeightFormat::kQ8_0>, kMaxTokens);
    case WeightFormat::kQ4_0:
      return run(kIntegerTiles<WeightFormat::kQ4_0>, kMaxTokens);
    case WeightFormat::kQ4_1:
      return run(kIntegerTiles<WeightFormat::kQ4_1>, kMaxTokens);
    default:
      return;
  }
}

}  // namespace millrace::models::avx512vnni
