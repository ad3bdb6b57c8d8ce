// Products of rows of bytes and packed panels, for any vector width: a tile of
// kRows rows and one panel stays in registers over all of k, four steps at a
// time. Sums are not cut in blocks of k, since they could not wait in y; a
// panel comes from L2 then, which is fast enough for tiles of some rows.
//
// What one would guess wrong: where the machine multiplies pairs into sixteen
// bits (S::kSafePairs), a pair of weights that could overflow them is split in
// two halves that cannot. The second halves stand in a list behind the panels;
// most groups of weights have none.
//
//   panels                [panel][k / 4][output][4]
//   first                 [panels + 1] int32: entries of each panel
//   at                    [entries] int32: group of four steps
//   second halves         [entries][output][4]
//
// A file that compiles this gives its vectors as a struct S:
//   V                     floats and integers, as in scalar/vec1.h
//   kVectors              vectors of a panel
//   kRows                 rows of a full tile
//   kBlockBytes           of rows that are to stay in cache beside a panel
//   kSafePairs            see above
//   LoadInts(p, n)        the first n lanes, others 0
//   StoreInts(p, v)
//   Four(p)               4 bytes in each lane
//   Weights(p)
//   Dot(acc, four, w)     acc + Σ of 4 products
//   LoadBytes(p, n)       the first n bytes as floats, others 0
//   StoreBytes(p, n, v, zero)  round(v) + zero, the first n; they fit
//   Lookup(table, x, n, y)  y[i] = table[x[i]], maybe in place
//   Half                  as many bytes as two vectors have lanes
//   PackHalf(a, b, zero)  a + zero, b + zero, which fit
//   StoreHalf(p, n, v)    the first n
//   LookupHalves(table, v)  each byte of an array of them
//   Greater(a, b), LoadRaw(p, n), StoreRaw(p, n, v), kRawBytes: plain bytes
// and, for four vectors of integers in the order of kernels/dense_int8/
// depthwise.h and the bytes of as many values, Taps:
//   kTapRows              values whose products one DotTaps adds
//   LoadTaps(p), StoreTaps(p, n, bytes), NoTaps()
//   Interleave(taps, x)   kTapRows times bytes to four vectors
//   PutTaps(w, p)         kTapRows weights of one lane as DotTaps wants them
//   DotTaps(acc, x, w)    acc + Σ of kTapRows products
//   PackBytes(q, zero)    q + zero as bytes, into which they fit
//   LookupTaps(table, bytes)
// Anonymous namespace: every instruction set compiles its own copy.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/cpu/kernels/dense_int8/epilogue.h"

namespace millrace::models {
namespace {

inline int64_t SmallerOf(int64_t a, int64_t b) { return a < b ? a : b; }

template <class S>
class Int8Gemm {
 public:
  using V = typename S::V;
  using F = typename V::F;
  using I = typename V::I;
  static constexpr int kPanel = S::kVectors * V::kLanes;
  static constexpr int kGroup = kPanel * 4;  // bytes of four steps of a panel

  static int64_t Groups(int64_t k) { return (k + 3) / 4; }
  static int64_t Panels(int64_t n) { return (n + kPanel - 1) / kPanel; }

  static int64_t PackedBytes(const int8_t* w, int64_t n, int64_t k) {
    const Layout at(n, k);
    if constexpr (!S::kSafePairs) return at.first;
    int64_t count = 0;
    for (int64_t panel = 0; panel < Panels(n); ++panel) {
      for (int64_t g = 0; g < Groups(k); ++g) {
        count += NeedsSecond(w, n, k, panel, g);
      }
    }
    return at.SecondAt(count) + count * kGroup;
  }

  static void Pack(const int8_t* w, int64_t n, int64_t k, int8_t* packed) {
    const Layout at(n, k);
    auto* first = reinterpret_cast<int32_t*>(packed + at.first);
    auto* where = reinterpret_cast<int32_t*>(packed + at.where);
    int64_t count = 0;
    if constexpr (S::kSafePairs) {
      for (int64_t panel = 0; panel < Panels(n); ++panel) {
        first[panel] = static_cast<int32_t>(count);
        for (int64_t g = 0; g < Groups(k); ++g) {
          if (!NeedsSecond(w, n, k, panel, g)) continue;
          where[count++] = static_cast<int32_t>(g);
        }
      }
      first[Panels(n)] = static_cast<int32_t>(count);
    }
    int8_t* second = packed + at.SecondAt(count);
    int64_t entry = 0;
    for (int64_t panel = 0; panel < Panels(n); ++panel) {
      for (int64_t g = 0; g < Groups(k); ++g) {
        int8_t* out = packed + (panel * Groups(k) + g) * kGroup;
        const bool listed = S::kSafePairs && entry < count &&
                            where[entry] == g && first[panel] <= entry &&
                            entry < first[panel + 1];
        int8_t* rest = listed ? second + entry * kGroup : nullptr;
        entry += listed;
        for (int64_t j = 0; j < kPanel; ++j) {
          for (int64_t i = 0; i < 4; i += 2) {
            const int32_t a = At(w, n, k, panel * kPanel + j, g * 4 + i);
            const int32_t b = At(w, n, k, panel * kPanel + j, g * 4 + i + 1);
            const bool split = S::kSafePairs && !IsSafe(a, b);
            int8_t* to = out + j * 4 + i;
            to[0] = static_cast<int8_t>(split ? a / 2 : a);
            to[1] = static_cast<int8_t>(split ? b / 2 : b);
            if (rest == nullptr) continue;
            rest[j * 4 + i] = static_cast<int8_t>(split ? a - a / 2 : 0);
            rest[j * 4 + i + 1] = static_cast<int8_t>(split ? b - b / 2 : 0);
          }
        }
      }
    }
  }

  // Rows [row, row + rows) of y by x, which holds just these, ld_x bytes apart.
  struct Job {
    const int8_t* w;
    int64_t n;
    int64_t k;
    int64_t panel_begin;
    int64_t panel_end;
    Int8Out out;  // row 0, output 0
    const Int8Epilogue* epilogue;
  };
  static void Block(const Job& job, const uint8_t* x, int64_t ld_x, int64_t row,
                    int64_t rows) {
    Part p{job, Groups(job.k), ld_x};
    SetQuick(p);
    const Layout at(job.n, job.k);
    if constexpr (S::kSafePairs) {
      p.first = reinterpret_cast<const int32_t*>(job.w + at.first);
      p.where = reinterpret_cast<const int32_t*>(job.w + at.where);
      p.second = job.w + at.SecondAt(p.first[Panels(job.n)]);
    }
    if (rows <= kFewRows) {
      Few<kFewRows>(p, static_cast<int>(rows), x, row);
      return;
    }
    for (int64_t panel = job.panel_begin; panel < job.panel_end; ++panel) {
      for (int64_t done = 0; done < rows;) {
        int64_t take = rows - done;
        // Two middling tiles rather than a full one and a sliver.
        if (take > S::kRows && take < S::kRows + kSliver) take = (take + 1) / 2;
        take = SmallerOf(take, S::kRows);
        Wide<S::kRows>(p, static_cast<int>(take), x + done * ld_x, row + done,
                       panel);
        done += take;
      }
    }
  }

  // Rows that a block takes: they and a panel share the cache.
  static int64_t BlockRows(int64_t k) {
    const int64_t fit = S::kBlockBytes / (k + 64) / S::kRows * S::kRows;
    return fit < S::kRows ? S::kRows : SmallerOf(fit, 32 * S::kRows);
  }

 private:
  static constexpr int kFewRows = 3;
  static constexpr int kSliver = 4;
  static constexpr int kSums = S::kRows * S::kVectors;
  template <int kR>
  static constexpr int kPanelsFor = kSums / (kR * S::kVectors) > 4
                                        ? 4
                                        : kSums / (kR * S::kVectors);

  // Where the parts of packed weights begin.
  struct Layout {
    Layout(int64_t n, int64_t k)
        : first(Panels(n) * Groups(k) * kGroup),
          where(Line(first + (Panels(n) + 1) * 4)) {}
    static int64_t Line(int64_t bytes) { return (bytes + 63) / 64 * 64; }
    int64_t SecondAt(int64_t count) const { return Line(where + count * 4); }

    int64_t first;
    int64_t where;
  };

  struct Part {
    const Job& job;
    int64_t groups;
    int64_t ld_x;
    const int32_t* first = nullptr;
    const int32_t* where = nullptr;
    const int8_t* second = nullptr;
    bool quick = false;  // the epilogue needs no function, and bytes come out
    bool plain = false;  // and nothing joins
    float low = 0;
    float high = 0;
  };

  static int32_t At(const int8_t* w, int64_t n, int64_t k, int64_t j,
                    int64_t i) {
    return j < n && i < k ? w[j * k + i] : 0;
  }
  // 255 * 128 fits in sixteen bits.
  static bool IsSafe(int32_t a, int32_t b) {
    const int32_t up = (a > 0 ? a : 0) + (b > 0 ? b : 0);
    const int32_t down = (a < 0 ? a : 0) + (b < 0 ? b : 0);
    return up <= 128 && down >= -128;
  }
  static bool NeedsSecond(const int8_t* w, int64_t n, int64_t k, int64_t panel,
                          int64_t group) {
    for (int64_t j = panel * kPanel; j < (panel + 1) * kPanel; ++j) {
      for (int64_t i = group * 4; i < group * 4 + 4; i += 2) {
        if (!IsSafe(At(w, n, k, j, i), At(w, n, k, j, i + 1))) return true;
      }
    }
    return false;
  }

  static void SetQuick(Part& p) {
    const Int8Epilogue& e = *p.job.epilogue;
    const ByteLimits limits(e);
    p.quick = p.job.out.bytes != nullptr && e.residual_f32 == nullptr &&
              limits.cover_f;
    p.plain = e.middle_scale == 0 && e.residual == nullptr && e.y_scale == 1;
    p.low = limits.low;
    p.high = limits.high;
  }

  template <int kR>
  static void Wide(const Part& p, int rows, const uint8_t* x, int64_t row,
                   int64_t panel) {
    if constexpr (kR > 1) {
      if (rows < kR) return Wide<kR - 1>(p, rows, x, row, panel);
    }
    Tile<kR, 1>(p, x, row, panel);
  }

  // Few rows share panels side by side, for sums enough on the way.
  template <int kR>
  static void Few(const Part& p, int rows, const uint8_t* x, int64_t row) {
    if constexpr (kR > 1) {
      if (rows < kR) return Few<kR - 1>(p, rows, x, row);
    }
    constexpr int kP = kPanelsFor<kR>;
    int64_t panel = p.job.panel_begin;
    for (; panel + kP <= p.job.panel_end; panel += kP) {
      Tile<kR, kP>(p, x, row, panel);
    }
    for (; panel < p.job.panel_end; ++panel) Tile<kR, 1>(p, x, row, panel);
  }

  template <int kR, int kP>
  static void Tile(const Part& p, const uint8_t* x, int64_t row,
                   int64_t panel) {
    constexpr int kNv = kP * S::kVectors;
    constexpr int64_t kWidth = kP * kPanel;
    I acc[kR][kNv];
#pragma GCC unroll 16
    for (int r = 0; r < kR; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < kNv; ++v) acc[r][v] = V::SetBits(0);
    }
    Multiply<kR, kP>(p, x, p.job.w + panel * p.groups * kGroup, acc);
    if constexpr (S::kSafePairs) AddSecond<kR, kP>(p, x, panel, acc);
    const int64_t n0 = panel * kPanel;
    const int64_t live = SmallerOf(p.job.n - n0, kWidth);
    if (p.quick && p.plain) {
      return FinishQuickly<kR, kNv, true>(p, row, n0, live, acc);
    }
    if (p.quick) return FinishQuickly<kR, kNv, false>(p, row, n0, live, acc);
    alignas(64) int32_t sums[kR * kWidth];
#pragma GCC unroll 16
    for (int r = 0; r < kR; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < kNv; ++v) {
        S::StoreInts(sums + r * kWidth + v * V::kLanes, acc[r][v]);
      }
    }
    Int8Finish<S>::Run(sums, kWidth, kR, live, From(*p.job.epilogue, row, n0),
                       p.job.out.At(row, n0));
  }

  // The commonest epilogues without leaving the registers: two vectors at a
  // time, of which `live` values are wanted.
  template <int kR, int kNv, bool kPlain>
  static void FinishQuickly(const Part& p, int64_t row, int64_t n0,
                            int64_t live, I (&acc)[kR][kNv]) {
    static_assert(kNv % 2 == 0);
    const Int8Epilogue& e = *p.job.epilogue;
    const F low = V::Set(p.low);
    const F high = V::Set(p.high);
    const int32_t zero = e.y_zero;
    const uint8_t* const table = e.lookup;
    const int64_t ld = p.job.out.ld;
    uint8_t* y = p.job.out.bytes + row * ld + n0;
#pragma GCC unroll 4
    for (int v = 0; v < kNv; v += 2) {
      const int64_t done = v * V::kLanes;
      const int64_t n = n0 + done;
      F scale[2];
      F bias[2];
      I offset[2];
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) {
        const int64_t at = n + i * V::kLanes;
        const int64_t left = live - done - i * V::kLanes;
        offset[i] = S::LoadInts(e.offset + at, left);
        scale[i] = V::LoadFirst(e.scale + at, left);
        bias[i] =
            e.bias != nullptr ? V::LoadFirst(e.bias + at, left) : V::Zero();
      }
      typename S::Half out[kR];
#pragma GCC unroll 16
      for (int r = 0; r < kR; ++r) {
        I q[2];
#pragma GCC unroll 2
        for (int i = 0; i < 2; ++i) {
          const I sum = V::AddInts(acc[r][v + i], offset[i]);
          F value = V::Fma(V::ToFloat(sum), scale[i], bias[i]);
          if constexpr (!kPlain) {
            value = Behind(e, value, row + r, n + i * V::kLanes,
                           live - done - i * V::kLanes);
          }
          q[i] = S::ToInts(V::Min(V::Max(value, low), high));
        }
        out[r] = S::PackHalf(q[0], q[1], zero);
      }
      if (table != nullptr) S::LookupHalves(table, out);
#pragma GCC unroll 16
      for (int r = 0; r < kR; ++r) {
        S::StoreHalf(y + r * ld + done, live - done, out[r]);
      }
    }
  }

  // Of one vector, whose first `live` values are wanted.
  static F Behind(const Int8Epilogue& e, F value, int64_t row, int64_t n,
                  int64_t live) {
    if (e.middle_scale != 0) {
      value = V::Max(V::Round(value), V::Set(e.middle_low));
      value = V::Min(V::Set(e.middle_high), value);
      value = V::Fma(value, V::Set(e.middle_scale),
                     e.middle_bias != nullptr
                         ? V::LoadFirst(e.middle_bias + n, live)
                         : V::Zero());
    }
    if (e.residual != nullptr) {
      const uint8_t* from = e.residual + row * e.ld_residual + n;
      const F q = V::Sub(S::LoadBytes(from, live), V::Set(e.residual_zero));
      value = V::Fma(q, V::Set(e.residual_scale), value);
    }
    return V::Mul(value, V::Set(e.y_scale));
  }

  // Rows in threes behind one pointer each, as in kernels/dense/gemm.h.
  template <int kR, int kP>
  static void Multiply(const Part& p, const uint8_t* x, const int8_t* w,
                       I (&acc)[kR][kP * S::kVectors]) {
    constexpr int kNv = kP * S::kVectors;
    constexpr int kThrees = (kR + 2) / 3;
    const int64_t panel_bytes = p.groups * kGroup;
    const uint8_t* rows[kThrees];
#pragma GCC unroll 16
    for (int t = 0; t < kThrees; ++t) rows[t] = x + 3 * t * p.ld_x;
    for (int64_t g = 0; g < p.groups; ++g) {
      I b[kNv];
#pragma GCC unroll 16
      for (int v = 0; v < kNv; ++v) {
        b[v] = S::Weights(w + v / S::kVectors * panel_bytes +
                          v % S::kVectors * V::kLanes * 4);
      }
#pragma GCC unroll 16
      for (int r = 0; r < kR; ++r) {
        const I a = S::Four(rows[r / 3] + r % 3 * p.ld_x);
#pragma GCC unroll 16
        for (int v = 0; v < kNv; ++v) acc[r][v] = S::Dot(acc[r][v], a, b[v]);
      }
#pragma GCC unroll 16
      for (int t = 0; t < kThrees; ++t) rows[t] += 4;
      w += kGroup;
    }
  }

  template <int kR, int kP>
  static void AddSecond(const Part& p, const uint8_t* x, int64_t panel,
                        I (&acc)[kR][kP * S::kVectors]) {
#pragma GCC unroll 4
    for (int j = 0; j < kP; ++j) {
      const int32_t end = p.first[panel + j + 1];
      for (int32_t i = p.first[panel + j]; i < end; ++i) {
        const uint8_t* from = x + int64_t{p.where[i]} * 4;
        const int8_t* w = p.second + int64_t{i} * kGroup;
#pragma GCC unroll 16
        for (int r = 0; r < kR; ++r) {
          const I a = S::Four(from + r * p.ld_x);
#pragma GCC unroll 16
          for (int v = 0; v < S::kVectors; ++v) {
            I& sum = acc[r][j * S::kVectors + v];
            sum = S::Dot(sum, a, S::Weights(w + v * V::kLanes * 4));
          }
        }
      }
    }
  }
};

}  // namespace
}  // namespace millrace::models
