// Attention of a few query rows over one split of keys, for any vector width.
// The chains are those of llm_kernels.h; compare scalar/attention.cc.
//
// Every load of K and V is shared by a tile of rows: decode brings the few
// query heads of one KV head, prefill up to 48 rows. Pages are the outer loop,
// so that a page (8 KiB at f16 and 64 dims) stays in L1 for all tiles. Scores
// have keys in the lanes and need no horizontal sum; p·V has dims there.
// What is read has been asked for a few KiB earlier, and for L1 alone: it is
// read once, and on its way past L2 it displaces nothing there. Asking for more
// than L1 keeps is slower.
//
// Rows of a tile may see different numbers of keys. They share only those keys
// that all of them see; the rest is added row by row, before and after the
// shared ones. Adding 0 * V instead would let an infinity in V, or the sign of
// a zero, leak.
//
// A file that compiles this gives its vectors, a struct V:
//   F, kLanes          a vector of floats
//   kAccumulators      vectors that stay in registers beside what is loaded
//   kAheadBytes        how far ahead of the reading to ask
//   Zero Load Store Broadcast(const float*) Set(float) Fma Add Sub Mul Div Max
//   Exp
//   FromHalf FromInt8  kLanes values of f16 or int8
//   I, LoadKeys        kLanes keys of four int8 each, in the form Dot wants
//   DotStart(sum of q) Dot(acc, keys, q)  ToFloat: exact Σ q * k; q is four
//                      int8 of one row, 4 bytes of an aligned array
//   kIntRows           rows of an int8 tile
//   Mask, First(n)     lanes 0…n-1; n may be 0 or above kLanes
//   Keep(mask, x, y)   x where the mask is set, else y
//   Sums, NoSums()     eight lanes of the documented tree
//   AddLanes(l, x)     adds x to them
//   SumOf(l)           of all eight
//   GreatestLane
// and, in functions of its own: ScalesOf, QuantizeHead of its head8.h.
// Anonymous namespace: every instruction set compiles its own copy.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/cpu/kernels/softmax.h"
#include "models/cpu/llm_kernels.h"

namespace millrace::models {
namespace {

template <class V>
class AttendTiles {
 public:
  // Scores of each row; then, for int8, its query, scale and sum.
  static int64_t ScratchFloats(int32_t num_rows, int32_t head_dim) {
    return int64_t{num_rows} * (kSplitKeys + head_dim / 4 + 2);
  }

  static void Attend(const AttendArgs& args) {
    if (args.kv_format == KvFormat::kF32) {
      AttendAs<KvFormat::kF32>(args);
    } else if (args.kv_format == KvFormat::kInt8) {
      AttendAs<KvFormat::kInt8>(args);
    } else {
      AttendAs<KvFormat::kF16>(args);
    }
  }

 private:
  using F = typename V::F;
  using Rows = SoftmaxRows<V>;
  static constexpr int kLanes = V::kLanes;
  static constexpr int kSplitKeys = 256;
  static constexpr int kRowTile = 6;
  // Vectors of a tile of many rows, and of one of few.
  static constexpr int kNarrow = V::kAccumulators / kRowTile;
  static constexpr int kFewRows = 3;
  static constexpr int kWide = 4;

  template <KvFormat kFormat>
  static constexpr int64_t kElement = kFormat == KvFormat::kF32   ? 4
                                      : kFormat == KvFormat::kF16 ? 2
                                                                  : 1;

  template <KvFormat kFormat>
  static F LoadKv(const void* base, int64_t at) {
    if constexpr (kFormat == KvFormat::kF32) {
      return V::Load(static_cast<const float*>(base) + at);
    } else if constexpr (kFormat == KvFormat::kInt8) {
      return V::FromInt8(static_cast<const int8_t*>(base) + at);
    } else {
      return V::FromHalf(static_cast<const uint16_t*>(base) + at);
    }
  }

  // Asks for `bytes` from `at` on; `page` may be null: nothing to ask for.
  template <int64_t kBytes>
  static void Prefetch(const AttendArgs& args, const void* page, int64_t at) {
    if (page == nullptr) return;
    const char* p = static_cast<const char*>(page) + at;
    if (args.ask_all_caches) {
#pragma GCC unroll 4
      for (int64_t line = 0; line < kBytes; line += 64) {
        __builtin_prefetch(p + line, 0, 3);
      }
      return;
    }
#pragma GCC unroll 4
    for (int64_t line = 0; line < kBytes; line += 64) {
      __builtin_prefetch(p + line, 0, 0);
    }
  }

  static void PrefetchScales(const AttendArgs& args, const void* page) {
    Prefetch<kPageKeys * sizeof(float)>(args, page,
                                        int64_t{kPageKeys} * args.head_dim);
  }

  // acc[r][i] += x[r] * y[i]. Whichever are fewer stay in registers.
  template <int kRows, int kVectors, class X, class Y>
  static void Outer(F (&acc)[kRows][kVectors], X x, Y y) {
    if constexpr (kRows < kVectors) {
      F a[kRows];
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) a[r] = x(r);
#pragma GCC unroll 8
      for (int i = 0; i < kVectors; ++i) {
        const F b = y(i);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) acc[r][i] = V::Fma(a[r], b, acc[r][i]);
      }
    } else {
      F b[kVectors];
#pragma GCC unroll 8
      for (int i = 0; i < kVectors; ++i) b[i] = y(i);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const F a = x(r);
#pragma GCC unroll 8
        for (int i = 0; i < kVectors; ++i) {
          acc[r][i] = V::Fma(a, b[i], acc[r][i]);
        }
      }
    }
  }

  // Scores of kRows rows against kVectors * kLanes keys of a page, from `key`
  // on. Meanwhile as many bytes of the page `ahead` are asked for.
  template <KvFormat kFormat, int kRows, int kVectors>
  static void ScoreTile(const AttendArgs& args, int32_t row, const void* page,
                        const void* ahead, int32_t key, float* scores) {
    constexpr int64_t kAsk = kVectors * kLanes * kElement<kFormat>;
    const int64_t dims = args.head_dim;
    const float* q = args.q + row * args.q_stride;
    F s[kRows][kVectors];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int i = 0; i < kVectors; ++i) s[r][i] = V::Zero();
    }
    for (int64_t d = 0; d < dims; ++d) {
      Prefetch<kAsk>(args, ahead, key * dims * kElement<kFormat> + d * kAsk);
      Outer<kRows, kVectors>(
          s, [&](int r) { return V::Broadcast(q + r * args.q_stride + d); },
          [&](int i) {
            const int64_t group = key / 16 + i * kLanes / 16;
            return LoadKv<kFormat>(page,
                                   (group * dims + d) * 16 + i * kLanes % 16);
          });
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int i = 0; i < kVectors; ++i) {
        V::Store(scores + r * kSplitKeys + i * kLanes, s[r][i]);
      }
    }
  }

  // Queries as int8, after the scores in the scratch: [rows][head_dim] int8,
  // [rows] scales, [rows] sums.
  static int8_t* Queries(const AttendArgs& args) {
    return reinterpret_cast<int8_t*>(args.scratch +
                                     int64_t{args.num_rows} * kSplitKeys);
  }
  static float* QueryScales(const AttendArgs& args) {
    return reinterpret_cast<float*>(Queries(args) +
                                    int64_t{args.num_rows} * args.head_dim);
  }
  static int32_t* QuerySums(const AttendArgs& args) {
    return reinterpret_cast<int32_t*>(QueryScales(args) + args.num_rows);
  }
  static void QuantizeQueries(const AttendArgs& args) {
    for (int32_t row = 0; row < args.num_rows; ++row) {
      int8_t* to = Queries(args) + int64_t{row} * args.head_dim;
      QueryScales(args)[row] =
          QuantizeHead(args.q + row * args.q_stride, args.head_dim, to);
      int32_t sum = 0;
      for (int32_t d = 0; d < args.head_dim; ++d) sum += to[d];
      QuerySums(args)[row] = sum;
    }
  }

  // ScoreTile over int8.
  template <int kRows, int kVectors>
  static void ScoreTile8(const AttendArgs& args, int32_t row, const void* page,
                         const void* ahead, int32_t key, float* scores) {
    constexpr int64_t kAsk = kVectors * kLanes * 4;
    const int64_t dims = args.head_dim;
    const int8_t* q = Queries(args) + row * dims;
    const auto* keys = static_cast<const int8_t*>(page) + key / 16 * dims * 16;
    typename V::I s[kRows][kVectors];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int i = 0; i < kVectors; ++i) {
        s[r][i] = V::DotStart(QuerySums(args)[row + r]);
      }
    }
    for (int64_t d = 0; d < dims; d += 4) {
      Prefetch<kAsk>(args, ahead, key * dims + d / 4 * kAsk);
      typename V::I k[kVectors];
#pragma GCC unroll 8
      for (int i = 0; i < kVectors; ++i) {
        k[i] = V::LoadKeys(keys + (i * kLanes / 16 * dims + d) * 16 +
                           i * kLanes % 16 * 4);
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
        for (int i = 0; i < kVectors; ++i) {
          s[r][i] = V::Dot(s[r][i], k[i], q + r * dims + d);
        }
      }
    }
    const float* scales = ScalesOf(page, args.head_dim) + key;
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const F dq = V::Set(QueryScales(args)[row + r]);
#pragma GCC unroll 8
      for (int i = 0; i < kVectors; ++i) {
        V::Store(scores + r * kSplitKeys + i * kLanes,
                 V::Mul(V::ToFloat(s[r][i]),
                        V::Mul(dq, V::Load(scales + i * kLanes))));
      }
    }
  }

  template <int kRows>
  static void ScorePage8(const AttendArgs& args, int32_t row, const void* page,
                         const void* ahead, int32_t groups, float* scores) {
    if constexpr (kRows > V::kIntRows) {
      ScorePage8<V::kIntRows>(args, row, page, ahead, groups, scores);
      ScorePage8<kRows - V::kIntRows>(args, row + V::kIntRows, page, nullptr,
                                      groups,
                                      scores + V::kIntRows * kSplitKeys);
    } else {
      PrefetchScales(args, ahead);
      constexpr int kAtOnce = kNarrow * kLanes / 16;
      int32_t g = 0;
      for (; g + kAtOnce <= groups; g += kAtOnce) {
        ScoreTile8<kRows, kNarrow>(args, row, page, ahead, g * 16,
                                   scores + g * 16);
      }
      for (; g < groups; ++g) {
        ScoreTile8<kRows, 16 / kLanes>(args, row, page, ahead, g * 16,
                                       scores + g * 16);
      }
    }
  }

  // p[k] *= scale of value k, for a row.
  static void ScaleValues(const AttendArgs& args, int32_t hidden,
                          int32_t visible, float* p) {
    for (int32_t k = hidden / kLanes * kLanes; k < visible; k += kLanes) {
      const float* scales =
          ScalesOf(args.v_pages[k / kPageKeys], args.head_dim) + k % kPageKeys;
      V::Store(p + k, V::Mul(V::Load(p + k), V::Load(scales)));
    }
  }

  // Scores of kRows rows against the `groups` groups in use of one page.
  template <KvFormat kFormat, int kRows>
  static void ScorePage(const AttendArgs& args, int32_t row, const void* page,
                        const void* ahead, int32_t groups, float* scores) {
    if constexpr (kFormat == KvFormat::kInt8) {
      return ScorePage8<kRows>(args, row, page, ahead, groups, scores);
    }
    constexpr int kVectors = kRows <= kFewRows ? kWide : kNarrow;
    constexpr int kAtOnce = kVectors * kLanes / 16;
    int32_t g = 0;
    for (; g + kAtOnce <= groups; g += kAtOnce) {
      ScoreTile<kFormat, kRows, kVectors>(args, row, page, ahead, g * 16,
                                          scores + g * 16);
    }
    for (; g < groups; ++g) {
      ScoreTile<kFormat, kRows, 16 / kLanes>(args, row, page, ahead, g * 16,
                                             scores + g * 16);
    }
  }

  // Pages that any row sees: begin…end - 1.
  struct Pages {
    int32_t begin;
    int32_t end;
  };
  static Pages PagesSeen(const AttendArgs& args) {
    const int32_t end = (args.num_keys + kPageKeys - 1) / kPageKeys;
    if (args.hidden == nullptr) return {0, end};
    int32_t least = args.num_keys;
    for (int32_t row = 0; row < args.num_rows; ++row) {
      least = Rows::Hidden(args, row) < least ? Rows::Hidden(args, row) : least;
    }
    return {least / kPageKeys, end};
  }

  // The page that is read V::kAheadBytes behind `page`: of `now` or, where
  // these end, of `then`, which is read from its page `first` on.
  template <KvFormat kFormat>
  static const void* PageAhead(const AttendArgs& args, Pages pages,
                               int32_t page, const void* const* now,
                               const void* const* then, int32_t first) {
    const int64_t bytes = kPageKeys * args.head_dim * kElement<kFormat>;
    const int32_t seen = pages.end - pages.begin;
    int32_t ahead = bytes < V::kAheadBytes
                        ? static_cast<int32_t>(V::kAheadBytes / bytes)
                        : 1;
    ahead = ahead < seen ? ahead : seen;
    return page + ahead < pages.end ? now[page + ahead]
                                    : then[first + page + ahead - pages.end];
  }

  template <KvFormat kFormat>
  static void Scores(const AttendArgs& args) {
    using Tile = void (*)(const AttendArgs&, int32_t, const void*, const void*,
                          int32_t, float*);
    static constexpr Tile kTiles[kRowTile] = {
        ScorePage<kFormat, 1>, ScorePage<kFormat, 2>, ScorePage<kFormat, 3>,
        ScorePage<kFormat, 4>, ScorePage<kFormat, 5>, ScorePage<kFormat, 6>};
    const Pages pages = PagesSeen(args);
    for (int32_t i = pages.begin; i < pages.end; ++i) {
      const int32_t first = i * kPageKeys;
      const int32_t keys = args.num_keys - first;
      const int32_t groups = keys >= kPageKeys ? 4 : (keys + 15) / 16;
      const void* page = args.k_pages[i];
      const void* ahead = PageAhead<kFormat>(args, pages, i, args.k_pages,
                                             args.v_pages, pages.begin);
      for (int32_t row = 0; row < args.num_rows; row += kRowTile) {
        const int32_t left = args.num_rows - row;
        kTiles[(left < kRowTile ? left : kRowTile) - 1](
            args, row, page, row == 0 ? ahead : nullptr, groups,
            args.scratch + int64_t{row} * kSplitKeys + first);
      }
    }
  }

  // o[r][d…] += p[r][k] * V[k][d…] for keys [begin, end) of one page, from dim
  // `dim` on, kVectors * kLanes dims.
  template <KvFormat kFormat, int kRows, int kVectors>
  static void ValueTile(const AttendArgs& args, const void* page,
                        const void* ahead, int32_t dim, int32_t begin,
                        int32_t end, const float* p, float* o) {
    constexpr int64_t kAsk = kVectors * kLanes * kElement<kFormat>;
    F acc[kRows][kVectors];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int i = 0; i < kVectors; ++i) {
        acc[r][i] = V::Load(o + r * args.o_stride + dim + i * kLanes);
      }
    }
    for (int32_t k = begin; k < end; ++k) {
      const int64_t at = int64_t{k} * args.head_dim + dim;
      Prefetch<kAsk>(args, ahead, at * kElement<kFormat>);
      Outer<kRows, kVectors>(
          acc, [&](int r) { return V::Broadcast(p + r * kSplitKeys + k); },
          [&](int i) { return LoadKv<kFormat>(page, at + i * kLanes); });
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int i = 0; i < kVectors; ++i) {
        V::Store(o + r * args.o_stride + dim + i * kLanes, acc[r][i]);
      }
    }
  }

  // All dims of kRows rows, keys [begin, end) of one page.
  template <KvFormat kFormat, int kRows>
  static void ValuePage(const AttendArgs& args, const void* page,
                        const void* ahead, int32_t begin, int32_t end,
                        const float* p, float* o) {
    constexpr int kVectors = kRows <= kFewRows ? kWide : kNarrow;
    if (begin >= end) return;
    if constexpr (kFormat == KvFormat::kInt8) {
      PrefetchScales(args, ahead);
    }
    int32_t d = 0;
    for (; d + kVectors * kLanes <= args.head_dim; d += kVectors * kLanes) {
      ValueTile<kFormat, kRows, kVectors>(args, page, ahead, d, begin, end, p,
                                          o);
    }
    for (; d < args.head_dim; d += 16) {
      ValueTile<kFormat, kRows, 16 / kLanes>(args, page, ahead, d, begin, end,
                                             p, o);
    }
  }

  // Keys that every row sees: hidden…visible - 1.
  struct Seen {
    int32_t hidden;
    int32_t visible;
  };
  static Seen SeenByAll(const AttendArgs& args) {
    Seen seen{0, args.num_keys};
    for (int32_t row = 0; row < args.num_rows; ++row) {
      const int32_t hidden = Rows::Hidden(args, row);
      const int32_t visible = args.visible[row];
      seen.hidden = hidden > seen.hidden ? hidden : seen.hidden;
      seen.visible = visible < seen.visible ? visible : seen.visible;
    }
    return seen;
  }
  static int32_t WithinPage(int32_t key) {
    return key < 0 ? 0 : key > kPageKeys ? kPageKeys : key;
  }

  template <KvFormat kFormat>
  static void Values(const AttendArgs& args) {
    using Tile = void (*)(const AttendArgs&, const void*, const void*, int32_t,
                          int32_t, const float*, float*);
    static constexpr Tile kTiles[kRowTile] = {
        ValuePage<kFormat, 1>, ValuePage<kFormat, 2>, ValuePage<kFormat, 3>,
        ValuePage<kFormat, 4>, ValuePage<kFormat, 5>, ValuePage<kFormat, 6>};
    for (int32_t row = 0; row < args.num_rows; ++row) {
      float* o = args.o + row * args.o_stride;
      for (int32_t d = 0; d < args.head_dim; d += kLanes) {
        V::Store(o + d, V::Zero());
      }
    }
    const Seen seen = SeenByAll(args);
    const Pages pages = PagesSeen(args);
    for (int32_t i = pages.begin; i < pages.end; ++i) {
      const int32_t first = i * kPageKeys;
      const void* page = args.v_pages[i];
      const void* ahead = PageAhead<kFormat>(args, pages, i, args.v_pages,
                                             args.next_k_pages, 0);
      for (int32_t row = 0; row < args.num_rows; row += kRowTile) {
        const int32_t left = args.num_rows - row;
        const int32_t rows = left < kRowTile ? left : kRowTile;
        const float* p = args.scratch + int64_t{row} * kSplitKeys + first;
        float* o = args.o + row * args.o_stride;
        if (seen.hidden <= first && seen.visible >= first + kPageKeys) {
          kTiles[rows - 1](args, page, row == 0 ? ahead : nullptr, 0, kPageKeys,
                           p, o);
          continue;
        }
        // Keys of this page that each row sees, and those that all see.
        int32_t begins[kRowTile];
        int32_t ends[kRowTile];
        int32_t begin = 0;
        int32_t end = kPageKeys;
        for (int32_t r = 0; r < rows; ++r) {
          begins[r] = WithinPage(Rows::Hidden(args, row + r) - first);
          ends[r] = WithinPage(args.visible[row + r] - first);
          begin = begins[r] > begin ? begins[r] : begin;
          end = ends[r] < end ? ends[r] : end;
        }
        const auto alone = [&](int32_t r, int32_t from, int32_t to) {
          if (from >= to) return;
          kTiles[0](args, page, nullptr, from, to, p + r * kSplitKeys,
                    o + r * args.o_stride);
        };
        if (begin >= end) {  // none that all see
          for (int32_t r = 0; r < rows; ++r) alone(r, begins[r], ends[r]);
          continue;
        }
        for (int32_t r = 0; r < rows; ++r) alone(r, begins[r], begin);
        kTiles[rows - 1](args, page, row == 0 ? ahead : nullptr, begin, end, p,
                         o);
        for (int32_t r = 0; r < rows; ++r) alone(r, end, ends[r]);
      }
    }
  }

  template <KvFormat kFormat>
  static void AttendAs(const AttendArgs& args) {
    if constexpr (kFormat == KvFormat::kInt8) QuantizeQueries(args);
    Scores<kFormat>(args);
    for (int32_t row = 0; row < args.num_rows; ++row) {
      float* p = args.scratch + int64_t{row} * kSplitKeys;
      Rows::Softmax(args, row, p);
      if constexpr (kFormat == KvFormat::kInt8) {
        ScaleValues(args, Rows::Hidden(args, row), args.visible[row], p);
      }
    }
    Values<kFormat>(args);
  }
};

}  // namespace
}  // namespace millrace::models
