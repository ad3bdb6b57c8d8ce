// Attention of a few query rows over one split of keys, on AVX2.
//
// Every load of K and V is shared by a tile of rows: decode brings the 3 or 4
// query heads of one KV head, prefill up to 48 rows. Pages are the outer loop,
// so that a page of K (8 KiB at f16 and 64 dims) stays in L1 for all tiles.
// Scores have keys in the lanes and need no horizontal sum; p·V has dims there.
//
// What one would guess wrong: rows of a tile that see different numbers of keys
// share only the keys all of them see; the rest is added row by row. Adding
// 0 * V instead would let an infinity in V, or the sign of a zero, leak.

#include "models/cpu/kernels/avx2/parts.h"
#include "models/cpu/kernels/avx2/vec8.h"

namespace millrace::models::avx2 {
namespace {

constexpr int kPageKeys = 64;
constexpr int kSplitKeys = 256;
constexpr int kScoreRows = 6;  // 6 rows x 16 keys: 12 accumulators
constexpr int kValueRows = 3;  // 3 rows x 32 dims: 12 accumulators

template <KvFormat kFormat>
__m256 Load8(const void* base, int64_t at) {
  if constexpr (kFormat == KvFormat::kF32) {
    return _mm256_loadu_ps(static_cast<const float*>(base) + at);
  } else {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(
        static_cast<const uint16_t*>(base) + at)));
  }
}

template <KvFormat kFormat>
constexpr int64_t kElement = kFormat == KvFormat::kF32 ? 4 : 2;  // bytes

// Asks for `bytes` from `at` on; `page` may be null: nothing to ask for.
inline void Prefetch(const void* page, int64_t at, int64_t bytes) {
  if (page == nullptr) return;
  const char* p = static_cast<const char*>(page) + at;
#pragma GCC unroll 4
  for (int64_t line = 0; line < bytes; line += 64) {
    _mm_prefetch(p + line, _MM_HINT_T0);
  }
}

// Scores of kRows rows against kGroups groups of 16 keys, from `group` on.
// Meanwhile the same part of the page that comes next is asked for.
template <KvFormat kFormat, int kRows, int kGroups>
void ScoreTile(const AttendArgs& args, int32_t row, const void* page,
               const void* next, int32_t group, float* scores) {
  constexpr int64_t kAsk = kGroups * 16 * kElement<kFormat>;
  const int64_t dims = args.head_dim;
  const float* q = args.q + row * args.q_stride;
  __m256 s[kRows][2 * kGroups];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int i = 0; i < 2 * kGroups; ++i) s[r][i] = _mm256_setzero_ps();
  }
  for (int64_t d = 0; d < dims; ++d) {
    Prefetch(next, group * dims * 16 * kElement<kFormat> + d * kAsk, kAsk);
    __m256 k[2 * kGroups];
#pragma GCC unroll 8
    for (int i = 0; i < 2 * kGroups; ++i) {
      k[i] =
          Load8<kFormat>(page, ((group + i / 2) * dims + d) * 16 + i % 2 * 8);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const __m256 x = _mm256_broadcast_ss(q + r * args.q_stride + d);
#pragma GCC unroll 8
      for (int i = 0; i < 2 * kGroups; ++i) {
        s[r][i] = _mm256_fmadd_ps(x, k[i], s[r][i]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int i = 0; i < 2 * kGroups; ++i) {
      _mm256_store_ps(scores + r * kSplitKeys + i * 8, s[r][i]);
    }
  }
}

// Scores of kRows rows against the `groups` groups in use of one page.
template <KvFormat kFormat, int kRows>
void ScorePage(const AttendArgs& args, int32_t row, const void* page,
               const void* next, int32_t groups, float* scores) {
  int32_t g = 0;
  if constexpr (kRows <= 3) {  // few rows: two groups, or latency shows
    for (; g + 2 <= groups; g += 2) {
      ScoreTile<kFormat, kRows, 2>(args, row, page, next, g, scores + g * 16);
    }
  }
  for (; g < groups; ++g) {
    ScoreTile<kFormat, kRows, 1>(args, row, page, next, g, scores + g * 16);
  }
}

template <KvFormat kFormat>
void Scores(const AttendArgs& args) {
  using Tile = void (*)(const AttendArgs&, int32_t, const void*, const void*,
                        int32_t, float*);
  static constexpr Tile kTiles[kScoreRows] = {
      ScorePage<kFormat, 1>, ScorePage<kFormat, 2>, ScorePage<kFormat, 3>,
      ScorePage<kFormat, 4>, ScorePage<kFormat, 5>, ScorePage<kFormat, 6>};
  for (int32_t first = 0; first < args.num_keys; first += kPageKeys) {
    const int32_t keys = args.num_keys - first;
    const int32_t groups = keys >= kPageKeys ? 4 : (keys + 15) / 16;
    const void* const* page = args.k_pages + first / kPageKeys;
    const void* next = keys > kPageKeys ? page[1] : args.v_pages[0];
    for (int32_t row = 0; row < args.num_rows; row += kScoreRows) {
      const int32_t left = args.num_rows - row;
      const int32_t rows = left < kScoreRows ? left : kScoreRows;
      kTiles[rows - 1](args, row, *page, row == 0 ? next : nullptr, groups,
                       args.scratch + int64_t{row} * kSplitKeys + first);
    }
  }
}

// Scores to exp(score - max) in place. Keys beyond `visible` hold garbage.
void Softmax(float* p, int32_t visible, float* m_out, float* l_out) {
  const __m256 lowest = _mm256_set1_ps(-__builtin_inff());
  __m256 m = lowest;
  for (Chunks8 c(visible); c.More(); c.Next()) {
    __m256 s = c.Load(p);
    if (!c.Whole()) {
      s = _mm256_blendv_ps(lowest, s, _mm256_castsi256_ps(c.Mask()));
    }
    m = _mm256_max_ps(s, m);
  }
  *m_out = LaneMax8(m);
  m = _mm256_set1_ps(*m_out);
  __m256 l = _mm256_setzero_ps();
  for (Chunks8 c(visible); c.More(); c.Next()) {
    __m256 e = Exp8(_mm256_sub_ps(c.Load(p), m));
    if (!c.Whole()) e = _mm256_and_ps(e, _mm256_castsi256_ps(c.Mask()));
    l = _mm256_add_ps(l, e);
    c.Store(p, e);
  }
  *l_out = LaneSum8(l);
}

// o[r][d…] += p[r][k] * V[k][d…] for keys [begin, end) of one page, kVectors
// times 8 dims.
template <KvFormat kFormat, int kRows, int kVectors>
void ValueTile(const AttendArgs& args, const void* page, const void* next,
               int32_t begin, int32_t end, const float* p, float* o) {
  constexpr int64_t kAsk = kVectors * 8 * kElement<kFormat>;
  __m256 acc[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) {
      acc[r][i] = _mm256_loadu_ps(o + r * args.o_stride + 8 * i);
    }
  }
  for (int32_t k = begin; k < end; ++k) {
    Prefetch(next, int64_t{k} * args.head_dim * kElement<kFormat>, kAsk);
    __m256 v[kVectors];
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) {
      v[i] = Load8<kFormat>(page, int64_t{k} * args.head_dim + 8 * i);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const __m256 x = _mm256_broadcast_ss(p + r * kSplitKeys + k);
#pragma GCC unroll 8
      for (int i = 0; i < kVectors; ++i) {
        acc[r][i] = _mm256_fmadd_ps(x, v[i], acc[r][i]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) {
      _mm256_storeu_ps(o + r * args.o_stride + 8 * i, acc[r][i]);
    }
  }
}

// Column d of a page; null stays null.
template <KvFormat kFormat>
const void* DimsFrom(const void* page, int64_t d) {
  if (page == nullptr) return nullptr;
  return static_cast<const char*>(page) + d * kElement<kFormat>;
}

// All dims of kRows rows, keys [begin, end) of one page.
template <KvFormat kFormat, int kRows>
void ValuePage(const AttendArgs& args, const void* page, const void* next,
               int32_t begin, int32_t end, const float* p, float* o) {
  if (begin >= end) return;
  int32_t d = 0;
  for (; d + 32 <= args.head_dim; d += 32) {
    ValueTile<kFormat, kRows, 4>(args, DimsFrom<kFormat>(page, d),
                                 DimsFrom<kFormat>(next, d), begin, end, p,
                                 o + d);
  }
  for (; d < args.head_dim; d += 16) {
    ValueTile<kFormat, kRows, 2>(args, DimsFrom<kFormat>(page, d),
                                 DimsFrom<kFormat>(next, d), begin, end, p,
                                 o + d);
  }
}

template <KvFormat kFormat>
void Values(const AttendArgs& args) {
  using Tile = void (*)(const AttendArgs&, const void*, const void*, int32_t,
                        int32_t, const float*, float*);
  static constexpr Tile kTiles[kValueRows] = {
      ValuePage<kFormat, 1>, ValuePage<kFormat, 2>, ValuePage<kFormat, 3>};
  for (int32_t row = 0; row < args.num_rows; ++row) {
    float* o = args.o + row * args.o_stride;
    for (int32_t d = 0; d < args.head_dim; d += 8) {
      _mm256_storeu_ps(o + d, _mm256_setzero_ps());
    }
  }
  for (int32_t first = 0; first < args.num_keys; first += kPageKeys) {
    const void* const* page = args.v_pages + first / kPageKeys;
    const void* next = args.num_keys - first > kPageKeys ? page[1] : nullptr;
    for (int32_t row = 0; row < args.num_rows; row += kValueRows) {
      const int32_t left = args.num_rows - row;
      const int32_t rows = left < kValueRows ? left : kValueRows;
      const float* p = args.scratch + int64_t{row} * kSplitKeys + first;
      float* o = args.o + row * args.o_stride;
      int32_t ends[kValueRows];
      int32_t common = kPageKeys;
      for (int32_t r = 0; r < rows; ++r) {
        const int32_t end = args.visible[row + r] - first;
        ends[r] = end < 0 ? 0 : end > kPageKeys ? kPageKeys : end;
        common = ends[r] < common ? ends[r] : common;
      }
      kTiles[rows - 1](args, *page, row == 0 ? next : nullptr, 0, common, p, o);
      for (int32_t r = 0; r < rows; ++r) {
        kTiles[0](args, *page, nullptr, common, ends[r], p + r * kSplitKeys,
                  o + r * args.o_stride);
      }
    }
  }
}

template <KvFormat kFormat>
void AttendAs(const AttendArgs& args) {
  Scores<kFormat>(args);
  for (int32_t row = 0; row < args.num_rows; ++row) {
    Softmax(args.scratch + int64_t{row} * kSplitKeys, args.visible[row],
            args.m + row, args.l + row);
  }
  Values<kFormat>(args);
}

}  // namespace

int64_t AttendScratchFloats(int32_t num_rows) {
  return int64_t{num_rows} * kSplitKeys;
}

void Attend(const AttendArgs& args) {
  if (args.kv_format == KvFormat::kF32) {
    AttendAs<KvFormat::kF32>(args);
  } else {
    AttendAs<KvFormat::kF16>(args);
  }
}

}  // namespace millrace::models::avx2
