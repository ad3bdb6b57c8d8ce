// Attention of a few query rows over one split of keys, on AVX-512: the AVX2
// code with 16 lanes and 32 registers. Rows share every load of K and V, pages
// are the outer loop, and rows that see different numbers of keys share only
// the keys all of them see (see avx2/attention.cc for why).

#include "models/cpu/kernels/avx2/vec8.h"
#include "models/cpu/kernels/avx512vnni/parts.h"
#include "models/cpu/kernels/avx512vnni/vec16.h"

namespace millrace::models::avx512vnni {
namespace {

constexpr int kPageKeys = 64;
constexpr int kSplitKeys = 256;
constexpr int kRowTile = 6;  // 6 rows x 4 vectors: 24 accumulators

template <KvFormat kFormat>
__m512 Load16(const void* base, int64_t at) {
  if constexpr (kFormat == KvFormat::kF32) {
    return _mm512_loadu_ps(static_cast<const float*>(base) + at);
  } else {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(
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
  __m512 s[kRows][kGroups];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int i = 0; i < kGroups; ++i) s[r][i] = _mm512_setzero_ps();
  }
  for (int64_t d = 0; d < dims; ++d) {
    Prefetch(next, group * dims * 16 * kElement<kFormat> + d * kAsk, kAsk);
    __m512 k[kGroups];
#pragma GCC unroll 8
    for (int i = 0; i < kGroups; ++i) {
      k[i] = Load16<kFormat>(page, ((group + i) * dims + d) * 16);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const __m512 x = _mm512_set1_ps(q[r * args.q_stride + d]);
#pragma GCC unroll 8
      for (int i = 0; i < kGroups; ++i) {
        s[r][i] = _mm512_fmadd_ps(x, k[i], s[r][i]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int i = 0; i < kGroups; ++i) {
      _mm512_store_ps(scores + r * kSplitKeys + i * 16, s[r][i]);
    }
  }
}

// Scores of kRows rows against the `groups` groups in use of one page.
template <KvFormat kFormat, int kRows>
void ScorePage(const AttendArgs& args, int32_t row, const void* page,
               const void* next, int32_t groups, float* scores) {
  if (groups == 4) {
    ScoreTile<kFormat, kRows, 4>(args, row, page, next, 0, scores);
    return;
  }
  if (groups >= 2) {
    ScoreTile<kFormat, kRows, 2>(args, row, page, next, 0, scores);
  }
  if (groups % 2 == 1) {
    const int32_t g = groups - 1;
    ScoreTile<kFormat, kRows, 1>(args, row, page, next, g, scores + g * 16);
  }
}

template <KvFormat kFormat>
void Scores(const AttendArgs& args) {
  using Tile = void (*)(const AttendArgs&, int32_t, const void*, const void*,
                        int32_t, float*);
  static constexpr Tile kTiles[kRowTile] = {
      ScorePage<kFormat, 1>, ScorePage<kFormat, 2>, ScorePage<kFormat, 3>,
      ScorePage<kFormat, 4>, ScorePage<kFormat, 5>, ScorePage<kFormat, 6>};
  for (int32_t first = 0; first < args.num_keys; first += kPageKeys) {
    const int32_t keys = args.num_keys - first;
    const int32_t groups = keys >= kPageKeys ? 4 : (keys + 15) / 16;
    const void* const* page = args.k_pages + first / kPageKeys;
    const void* next = keys > kPageKeys ? page[1] : args.v_pages[0];
    for (int32_t row = 0; row < args.num_rows; row += kRowTile) {
      const int32_t left = args.num_rows - row;
      kTiles[(left < kRowTile ? left : kRowTile) - 1](
          args, row, *page, row == 0 ? next : nullptr, groups,
          args.scratch + int64_t{row} * kSplitKeys + first);
    }
  }
}

// Scores to exp(score - max) in place. Keys beyond `visible` hold garbage.
void Softmax(float* p, int32_t visible, float* m_out, float* l_out) {
  const __m512 lowest = _mm512_set1_ps(-__builtin_inff());
  __m512 m = lowest;
  for (int32_t k = 0; k < visible; k += 16) {
    const __mmask16 live = FirstLanes16(visible - k);
    m = _mm512_max_ps(_mm512_mask_load_ps(lowest, live, p + k), m);
  }
  *m_out = LaneMax8(
      _mm256_max_ps(_mm512_castps512_ps256(m), _mm512_extractf32x8_ps(m, 1)));
  m = _mm512_set1_ps(*m_out);
  __m256 l = _mm256_setzero_ps();  // the documented tree has eight lanes
  for (int32_t k = 0; k < visible; k += 16) {
    const __mmask16 live = FirstLanes16(visible - k);
    const __m512 s = _mm512_maskz_load_ps(live, p + k);
    const __m512 e = _mm512_maskz_mov_ps(live, Exp16(_mm512_sub_ps(s, m)));
    l = _mm256_add_ps(l, _mm512_castps512_ps256(e));
    l = _mm256_add_ps(l, _mm512_extractf32x8_ps(e, 1));
    _mm512_store_ps(p + k, e);
  }
  *l_out = LaneSum8(l);
}

// o[r][d…] += p[r][k] * V[k][d…] for keys [begin, end) of one page, kVectors
// times 16 dims.
template <KvFormat kFormat, int kRows, int kVectors>
void ValueTile(const AttendArgs& args, const void* page, const void* next,
               int32_t begin, int32_t end, const float* p, float* o) {
  constexpr int64_t kAsk = kVectors * 16 * kElement<kFormat>;
  __m512 acc[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) {
      acc[r][i] = _mm512_loadu_ps(o + r * args.o_stride + 16 * i);
    }
  }
  for (int32_t k = begin; k < end; ++k) {
    Prefetch(next, int64_t{k} * args.head_dim * kElement<kFormat>, kAsk);
    __m512 v[kVectors];
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) {
      v[i] = Load16<kFormat>(page, int64_t{k} * args.head_dim + 16 * i);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const __m512 x = _mm512_set1_ps(p[r * kSplitKeys + k]);
#pragma GCC unroll 8
      for (int i = 0; i < kVectors; ++i) {
        acc[r][i] = _mm512_fmadd_ps(x, v[i], acc[r][i]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) {
      _mm512_storeu_ps(o + r * args.o_stride + 16 * i, acc[r][i]);
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
  for (; d + 64 <= args.head_dim; d += 64) {
    ValueTile<kFormat, kRows, 4>(args, DimsFrom<kFormat>(page, d),
                                 DimsFrom<kFormat>(next, d), begin, end, p,
                                 o + d);
  }
  for (; d < args.head_dim; d += 16) {
    ValueTile<kFormat, kRows, 1>(args, DimsFrom<kFormat>(page, d),
                                 DimsFrom<kFormat>(next, d), begin, end, p,
                                 o + d);
  }
}

template <KvFormat kFormat>
void Values(const AttendArgs& args) {
  using Tile = void (*)(const AttendArgs&, const void*, const void*, int32_t,
                        int32_t, const float*, float*);
  static constexpr Tile kTiles[kRowTile] = {
      ValuePage<kFormat, 1>, ValuePage<kFormat, 2>, ValuePage<kFormat, 3>,
      ValuePage<kFormat, 4>, ValuePage<kFormat, 5>, ValuePage<kFormat, 6>};
  for (int32_t row = 0; row < args.num_rows; ++row) {
    float* o = args.o + row * args.o_stride;
    for (int32_t d = 0; d < args.head_dim; d += 16) {
      _mm512_storeu_ps(o + d, _mm512_setzero_ps());
    }
  }
  for (int32_t first = 0; first < args.num_keys; first += kPageKeys) {
    const void* const* page = args.v_pages + first / kPageKeys;
    const void* next = args.num_keys - first > kPageKeys ? page[1] : nullptr;
    for (int32_t row = 0; row < args.num_rows; row += kRowTile) {
      const int32_t left = args.num_rows - row;
      const int32_t rows = left < kRowTile ? left : kRowTile;
      const float* p = args.scratch + int64_t{row} * kSplitKeys + first;
      float* o = args.o + row * args.o_stride;
      int32_t ends[kRowTile];
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

}  // namespace millrace::models::avx512vnni
