// Products of rows of bytes and packed panels, for any vector width: a tile of
// kRows rows and one panel stays in registers over all of k, four steps at a
// time. Sums are not cut in blocks of k, since they could not wait in y; a
// panel comes from L2 then, which is fast enough for tiles of some rows.
//
// Where the machine multiplies pairs into sixteen bits (S::kPairs), the weights
// themselves decide how they are multiplied, see panels.h; activations are
// words then or bytes.
//
// A file that compiles this gives its vectors as a struct S:
//   V                     floats and integers, as in scalar/vec1.h
//   kVectors              vectors of a panel
//   kRows                 rows of a full tile
//   kBlockBytes           of rows that are to stay in cache beside a panel
//   kHalves               half a panel is worth a tile of its own, which has
//                         sums enough
//   kFewPanels            that gathering pixels does not pay for
//   kPairs                see above
//   LoadInts(p, n)        the first n lanes, others 0
//   StoreInts(p, v)
//   Four(p)               4 bytes in each lane
//   Weights(p)
//   Dot(acc, four, w)     acc + Σ of 4 products
//   DotMoved(acc, w)      where Four gives bytes less 128: acc + Σ of 4
//   products
//                         of -128, which sums have too much; else there is none
//   with kPairs: DotTwo(acc, four, w, four, w)  acc + Σ of 8 products
//     WordWeights(p)      half a vector of bytes as words
//     DotWords(acc, two, w)  acc + Σ of 2 products of words
//     StoreWords(p, raw)  bytes as words
//     kWordRows           rows of a full tile of words
//     kMostFurther        entries of the list, a group, that words are slower
//                         than
//   LoadBytes(p, n)       the first n bytes as floats, others 0
//   StoreBytes(p, n, v, zero)  round(v) + zero, the first n; they fit
//   Lookup(table, x, n, y)  y[i] = table[x[i]], maybe in place
//   Half                  as many bytes as two vectors have lanes
//   PackHalf(a, b, zero)  a + zero, b + zero, which fit
//   StoreHalf(p, n, v)    the first n
//   Rows                  as many bytes for each of two rows
//   PackRows(q, zero)     of q[2][2], as PackHalf
//   StoreRow0(p, n, v), StoreRow1(p, n, v)
//   LookupRows(table, v)  each byte of an array of them
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
#include "models/cpu/kernels/dense_int8/panels.h"
#include "models/cpu/kernels/dense_int8/quick.h"

namespace millrace::models {
namespace {

template <class S>
class Int8Gemm {
 public:
  using V = typename S::V;
  using F = typename V::F;
  using I = typename V::I;
  using Panels = Int8Panels<S>;
  static constexpr int kPanel = Panels::kPanel;

  // Rows [row, row + rows) of y by x, which holds just these, ld_x bytes apart.
  struct Job {
    typename Panels::View w;
    int64_t n;
    int64_t k;
    int64_t panel_begin;
    int64_t panel_end;
    Int8Out out;  // row 0, output 0
    const Int8Epilogue* epilogue;
    // Where k is not in one piece: pieces of `run`, whole groups, with so many
    // bytes between them in rows of x.
    int64_t run = 0;
    int64_t skip = 0;
  };
  static void Block(const Job& job, const uint8_t* x, int64_t ld_x, int64_t row,
                    int64_t rows) {
    if constexpr (S::kPairs) {
      if (job.w.words) return BlockOf<Words>(job, x, ld_x, row, rows);
      BlockOf<Sums>(job, x, ld_x, row, rows);
    } else {
      BlockOf<Fours>(job, x, ld_x, row, rows);
    }
  }

  // Rows of so many bytes that a block takes: they and a panel share the cache.
  static int64_t BlockRows(int64_t row_bytes) {
    const int64_t fit = S::kBlockBytes / (row_bytes + 64) / S::kRows * S::kRows;
    return fit < S::kRows ? S::kRows : SmallerOf(fit, 32 * S::kRows);
  }

 private:
  static constexpr int kFewRows = 3;
  static constexpr int kSliver = 4;

  struct Part {
    const Job& job;
    int64_t groups;
    int64_t ld_x;
    int64_t run_groups;
    Int8Quick<S> quick;
  };

  // Forms of weights: how one panel's weights for kStep bytes of a row are read
  // and multiplied.
  struct Fours {
    static constexpr bool kTwo = false;  // groups at a time
    static constexpr int kRows = S::kRows;
    static constexpr int64_t kBytes = kPanel * 4;
    static I Weights(const int8_t* w, int v) {
      return S::Weights(w + v * V::kLanes * 4);
    }
    static I Dot(I acc, I x, I w) { return S::Dot(acc, x, w); }
  };
  struct Sums : Fours {
    static constexpr bool kTwo = true;
  };
  struct Words {
    static constexpr bool kTwo = false;
    static constexpr int kRows = S::kWordRows;
    static constexpr int64_t kBytes = kPanel * 2;
    static I Weights(const int8_t* w, int v) {
      return S::WordWeights(w + v * V::kLanes * 2);
    }
    static I Dot(I acc, I x, I w) { return S::DotWords(acc, x, w); }
  };

  template <class Form>
  static void BlockOf(const Job& job, const uint8_t* x, int64_t ld_x,
                      int64_t row, int64_t rows) {
    constexpr int kRows = Form::kRows;
    const int64_t groups = Panels::Groups(job.k);
    const Part p{job, groups, ld_x, job.run > 0 ? job.run / 4 : groups,
                 Int8Quick<S>(*job.epilogue, job.out, job.n)};
    if (rows <= kFewRows) {
      Few<Form, kFewRows>(p, static_cast<int>(rows), x, row);
      return;
    }
    for (int64_t panel = job.panel_begin; panel < job.panel_end; ++panel) {
      for (int64_t done = 0; done < rows;) {
        int64_t take = rows - done;
        // Two middling tiles rather than a full one and a sliver.
        if (take > kRows && take < kRows + kSliver) take = (take + 1) / 2;
        take = SmallerOf(take, kRows);
        Wide<Form, kRows>(p, static_cast<int>(take), x + done * ld_x,
                          row + done, panel);
        done += take;
      }
    }
  }

  template <class Form, int kR>
  static void Wide(const Part& p, int rows, const uint8_t* x, int64_t row,
                   int64_t panel) {
    if constexpr (kR > 1) {
      if (rows < kR) return Wide<Form, kR - 1>(p, rows, x, row, panel);
    }
    if constexpr (S::kHalves) {
      constexpr int kHalf = S::kVectors / 2;
      if (p.job.n - panel * kPanel <= kHalf * V::kLanes) {
        return Tile<Form, kR, 1, kHalf>(p, x, row, panel);
      }
    }
    Tile<Form, kR, 1>(p, x, row, panel);
  }

  // Few rows share panels side by side, for sums enough on the way.
  template <class Form, int kR>
  static void Few(const Part& p, int rows, const uint8_t* x, int64_t row) {
    if constexpr (kR > 1) {
      if (rows < kR) return Few<Form, kR - 1>(p, rows, x, row);
    }
    constexpr int kFit = Form::kRows / kR;
    constexpr int kP = kFit > 4 ? 4 : kFit;
    int64_t panel = p.job.panel_begin;
    for (; panel + kP <= p.job.panel_end; panel += kP) {
      Tile<Form, kR, kP>(p, x, row, panel);
    }
    for (; panel < p.job.panel_end; ++panel)
      Tile<Form, kR, 1>(p, x, row, panel);
  }

  // Of so many vectors of each panel: all, or the half that is left of one.
  template <class Form, int kR, int kP, int kV = S::kVectors>
  static void Tile(const Part& p, const uint8_t* x, int64_t row,
                   int64_t panel) {
    constexpr int kNv = kP * kV;
    constexpr int64_t kWidth = kNv * V::kLanes;
    I acc[kR][kNv];
#pragma GCC unroll 16
    for (int r = 0; r < kR; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < kNv; ++v) acc[r][v] = V::SetBits(0);
    }
    const int8_t* w = p.job.w.panels + panel * p.groups * Panels::kGroup;
    if constexpr (Form::kTwo) {
      MultiplySums<kR, kP, kV>(p, x, w, acc);
      AddFurther<kR, kP, kV>(p, x, panel, acc);
    } else {
      Multiply<Form, kR, kP, kV>(p, x, w, acc);
    }
    if constexpr (requires(I v) { S::DotMoved(v, v); }) {
      SubtractMoved<Form, kR, kP, kV>(p, w, acc);
    }
    const int64_t n0 = panel * kPanel;
    const int64_t live = SmallerOf(p.job.n - n0, kWidth);
    if (p.quick.applies()) {
      constexpr bool kMany = kR > 3;
      return kMany && live == kWidth
                 ? p.quick.template Finish<kMany>(row, n0, acc)
                 : p.quick.template Finish<false>(row, n0, acc);
    }
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

  // Rows in threes behind one pointer each, as in kernels/dense/gemm.h.
  template <int kR>
  struct Rows {
    static constexpr int kThrees = (kR + 2) / 3;
    const uint8_t* of[kThrees];
    const int64_t ld;

    Rows(const uint8_t* x, int64_t ld_x) : ld(ld_x) {
#pragma GCC unroll 16
      for (int t = 0; t < kThrees; ++t) of[t] = x + 3 * t * ld;
    }
    I Four(int r, int64_t at = 0) const {
      return S::Four(of[r / 3] + r % 3 * ld + at);
    }
    void Advance(int64_t bytes) {
#pragma GCC unroll 16
      for (int t = 0; t < kThrees; ++t) of[t] += bytes;
    }
  };

  // Of panels side by side, whose weights lie so many bytes apart. A k in one
  // piece has a loop of its own, since compilers copy sums around where loops
  // meet.
  template <class Form, int kR, int kP, int kV>
  [[gnu::always_inline]] static inline void Multiply(const Part& p,
                                                     const uint8_t* x,
                                                     const int8_t* w,
                                                     I (&acc)[kR][kP * kV]) {
    const int64_t panel_bytes = p.groups * Panels::kGroup;
    const int8_t* const end = w + panel_bytes;
    Rows<kR> rows(x, p.ld_x);
    if (p.job.run == 0) {
      for (; w < end; w += Form::kBytes) {
        Step<Form, kR, kP, kV>(rows, w, panel_bytes, acc);
        rows.Advance(4);
      }
      return;
    }
    const int64_t run_bytes = p.run_groups * Panels::kGroup;
    while (w < end) {
      for (const int8_t* const stop = w + run_bytes; w < stop;
           w += Form::kBytes) {
        Step<Form, kR, kP, kV>(rows, w, panel_bytes, acc);
        rows.Advance(4);
      }
      rows.Advance(p.job.skip);
    }
  }

  // Of each output, what all rows have too much.
  template <class Form, int kR, int kP, int kV>
  [[gnu::always_inline]] static inline void SubtractMoved(
      const Part& p, const int8_t* w, I (&acc)[kR][kP * kV]) {
    constexpr int kNv = kP * kV;
    const int64_t panel_bytes = p.groups * Panels::kGroup;
    I moved[kNv];
#pragma GCC unroll 16
    for (int v = 0; v < kNv; ++v) moved[v] = V::SetBits(0);
    for (int64_t at = 0; at < panel_bytes; at += Form::kBytes) {
#pragma GCC unroll 16
      for (int v = 0; v < kNv; ++v) {
        const int8_t* const from = w + at + v / kV * panel_bytes;
        moved[v] = S::DotMoved(moved[v], Form::Weights(from, v % kV));
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < kR; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < kNv; ++v) {
        acc[r][v] = V::SubInts(acc[r][v], moved[v]);
      }
    }
  }

  // The next panel's weights come to L2 while this one's are used.
  static void Fetch(const int8_t* w, int64_t bytes) {
#pragma GCC unroll 4
    for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(w + i, 0, 2);
  }

  template <class Form, int kR, int kP, int kV>
  [[gnu::always_inline]] static inline void Step(const Rows<kR>& rows,
                                                 const int8_t* w,
                                                 int64_t panel_bytes,
                                                 I (&acc)[kR][kP * kV]) {
    constexpr int kNv = kP * kV;
    if constexpr (kP == 1) Fetch(w + panel_bytes, Form::kBytes);
    if constexpr (kR == 1) {  // each weight is used once
      const I a = rows.Four(0);
#pragma GCC unroll 16
      for (int v = 0; v < kNv; ++v) {
        acc[0][v] = Form::Dot(acc[0][v], a,
                              Form::Weights(w + v / kV * panel_bytes, v % kV));
      }
      return;
    }
    I b[kNv];
#pragma GCC unroll 16
    for (int v = 0; v < kNv; ++v) {
      b[v] = Form::Weights(w + v / kV * panel_bytes, v % kV);
    }
#pragma GCC unroll 16
    for (int r = 0; r < kR; ++r) {
      const I a = rows.Four(r);
#pragma GCC unroll 16
      for (int v = 0; v < kNv; ++v) acc[r][v] = Form::Dot(acc[r][v], a, b[v]);
    }
  }

  // Two groups at a time, then one that is left, of a k in one piece.
  template <int kR, int kP, int kV>
  [[gnu::always_inline]] static inline void MultiplySums(
      const Part& p, const uint8_t* x, const int8_t* w, I (&acc)[kR][kP * kV]) {
    constexpr int kNv = kP * kV;
    constexpr int64_t kGroup = Panels::kGroup;
    const int64_t panel_bytes = p.groups * kGroup;
    Rows<kR> rows(x, p.ld_x);
    for (const int8_t* const end = w + panel_bytes;;) {
      for (int64_t g = 0; g + 2 <= p.run_groups; g += 2) {
        if constexpr (kP == 1) Fetch(w + panel_bytes, 2 * kGroup);
#pragma GCC unroll 16
        for (int v = 0; v < kNv; ++v) {
          const int8_t* of = w + v / kV * panel_bytes;
          const I b0 = Fours::Weights(of, v % kV);
          const I b1 = Fours::Weights(of + kGroup, v % kV);
#pragma GCC unroll 16
          for (int r = 0; r < kR; ++r) {
            acc[r][v] =
                S::DotTwo(acc[r][v], rows.Four(r), b0, rows.Four(r, 4), b1);
          }
        }
        w += 2 * kGroup;
        rows.Advance(8);
      }
      if (p.run_groups % 2 != 0) {
        Step<Fours, kR, kP, kV>(rows, w, panel_bytes, acc);
        w += kGroup;
      }
      if (w >= end) return;
      rows.Advance(p.job.skip);
    }
  }

  template <int kR, int kP, int kV>
  [[gnu::always_inline]] static inline void AddFurther(const Part& p,
                                                       const uint8_t* x,
                                                       int64_t panel,
                                                       I (&acc)[kR][kP * kV]) {
    const typename Panels::View& packed = p.job.w;
#pragma GCC unroll 4
    for (int j = 0; j < kP; ++j) {
      const int32_t end = packed.first[panel + j + 1];
      const uint8_t* piece = x;
      int64_t next = p.run_groups;  // the first group behind it; groups rise
      for (int32_t i = packed.first[panel + j]; i < end; ++i) {
        for (; packed.at[i] >= next; next += p.run_groups) {
          piece += p.job.skip;
        }
        const uint8_t* from = piece + int64_t{packed.at[i]} * 4;
        const int8_t* w = packed.further + int64_t{i} * Panels::kGroup;
#pragma GCC unroll 16
        for (int r = 0; r < kR; ++r) {
          const I a = S::Four(from + r * p.ld_x);
#pragma GCC unroll 16
          for (int v = 0; v < kV; ++v) {
            I& sum = acc[r][j * kV + v];
            sum = S::Dot(sum, a, Fours::Weights(w, v));
          }
        }
      }
    }
  }
};

}  // namespace
}  // namespace millrace::models
