// Products of rows and packed panels, for any vector width.
//
// A tile of kRows rows and one panel stays in registers over a block of k. The
// order is: blocks of rows (their part of x stays in L2), blocks of k, panels
// (a panel's part stays in L1), tiles. Sums wait in y between blocks of k. With
// few rows there is nothing to reuse but x: then k is not cut and several
// panels are read side by side, at the speed of memory.
//
// Additions of an output happen in the same order in every tile and block: each
// step of k is one fma into its own lane, and blocks end where links of the sum
// do.
//
// Results may be rounded on their way out of the registers: then sums wait
// elsewhere, as y has no room for them.
//
// A file that compiles this gives its vectors as a struct S:
//   V            as in scalar/vec1.h
//   E, MulAdd, Copy, Round: dense/float_factors.h or avx512bf16/bf16_factors.h
//   kVectors     vectors of a panel
//   kRows        rows of a full tile
//   kBlockRows   rows of a block, a multiple of kRows; an eighth more at most
//   kBlockK      most steps of k in a block, a multiple of kDenseLink
//   kUnroll      steps of k that the loop of a full tile takes at a time
//   Turn         Transposes of kernels/dense/transpose.h
// Anonymous namespace: every instruction set compiles its own copy.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/cpu/kernels/dense/epilogue.h"
#include "models/cpu/kernels/dense/quick_epilogue.h"
#include "models/cpu/kernels/dense/sums.h"

namespace millrace::models {
namespace {

inline int64_t SmallerOf(int64_t a, int64_t b) { return a < b ? a : b; }

template <class S>
class Gemm {
 public:
  using V = typename S::V;
  using F = typename V::F;
  static constexpr int kPanel = S::kVectors * V::kLanes;
  static constexpr int kFewRows = 4;

  static int64_t PackedFloats(int64_t n, int64_t k) {
    return (n + kPanel - 1) / kPanel * kPanel * k;
  }

  static void Pack(const float* w, int64_t n, int64_t k, MatrixStrides strides,
                   int64_t panel_begin, int64_t panel_end, float* packed) {
    for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
      const int64_t n0 = panel * kPanel;
      const int64_t live = SmallerOf(n - n0, kPanel);
      float* out = packed + n0 * k;
      const float* from = w + n0 * strides.n;
      if (strides.n == 1) {
        for (int64_t i = 0; i < k; ++i, out += kPanel, from += strides.k) {
#pragma GCC unroll 16
          for (int64_t j = 0; j < kPanel; j += V::kLanes) {
            V::Store(out + j, V::LoadFirst(from + j, live - j));
          }
        }
        continue;
      }
      if (strides.k == 1) {
        // What the last panel lacks is 0.
        if (live < kPanel) __builtin_memset(out, 0, sizeof(float) * kPanel * k);
        S::Turn::Run(from, live, k, strides.n, out, kPanel);
        continue;
      }
      for (int64_t i = 0; i < k; ++i, out += kPanel, from += strides.k) {
        for (int64_t j = 0; j < kPanel; ++j) {
          out[j] = j < live ? from[j * strides.n] : 0.0f;
        }
      }
    }
  }

  // A row of x is k words from x + row * ld_x on. `waiting`: SumFloats of
  // memory; null where y holds sums.
  static void Run(const GemmArgs& g, const float* x, int64_t ld_x,
                  float* waiting) {
    const int64_t block = EvenRows(g.row_end - g.row_begin, S::kBlockRows);
    for (int64_t row = g.row_begin; row < g.row_end; row += block) {
      const int64_t rows = SmallerOf(g.row_end - row, block);
      const int64_t step = KStep(rows, g.k);
      int64_t k0 = 0;
      do {
        const int64_t k1 = SmallerOf(k0 + step, g.k);
        Block(g, x + row * ld_x + k0, ld_x, row, rows, k0, k1, waiting);
        k0 = k1;
      } while (k0 < g.k);
    }
  }
  static void Run(const GemmArgs& g) { Run(g, g.x, g.ld_x, nullptr); }

  // What the sums of a block of rows need where they do not wait in y.
  static int64_t SumFloats(int64_t rows, int64_t n, int64_t k) {
    if (k <= S::kBlockK) return 0;
    return SmallerOf(rows, MostRows(S::kBlockRows)) * PackedFloats(n, 1);
  }

  // Rows of a block where all are cut in even blocks of about so many: a small
  // rest would read all weights once more. At most MostRows.
  static int64_t EvenRows(int64_t rows, int64_t about) {
    const int64_t most = MostRows(about);
    if (rows <= most) return rows > 0 ? rows : 1;
    const int64_t blocks = (rows + most - 1) / most;
    const int64_t tiles = (rows + S::kRows - 1) / S::kRows;
    return (tiles + blocks - 1) / blocks * S::kRows;
  }
  static constexpr int64_t MostRows(int64_t about) {
    return about + about / 8 / S::kRows * S::kRows;
  }

  // Steps of k that a block of so many rows takes at a time: whole links,
  // evenly cut.
  static int64_t KStep(int64_t rows, int64_t k) {
    return rows <= kFewRows ? k : KStep(k);
  }
  static int64_t KStep(int64_t k) {
    static_assert(S::kBlockK % kDenseLink == 0);
    if (k <= S::kBlockK) return k;
    const int64_t blocks = (k + S::kBlockK - 1) / S::kBlockK;
    const int64_t links = (k + kDenseLink - 1) / kDenseLink;
    return (links + blocks - 1) / blocks * kDenseLink;
  }

  // Steps [k0, k1) of k for rows [row, row + rows) of y; x holds just these.
  static void Block(const GemmArgs& g, const float* x, int64_t ld_x,
                    int64_t row, int64_t rows, int64_t k0, int64_t k1,
                    float* waiting) {
    Part p = PartOf(g, ld_x, k0, k1);
    if (g.y_bf16 != nullptr) {
      p.sums = {waiting, PackedFloats(g.n, 1), row};
    }
    if (rows <= kFewRows) {
      Few(p, static_cast<int>(rows), x, row, g.panel_begin);
      return;
    }
    Tiles(g, p, x, row, rows);
  }

  // All steps of k for these rows of y, where a row of x lies in `count` pieces
  // of equal length, `offsets` floats from x.
  static void Pieces(const GemmArgs& g, const float* x, int64_t ld_x,
                     int64_t row, int64_t rows, int64_t count,
                     const int64_t* offsets) {
    Part p = PartOf(g, ld_x, 0, g.k);
    p.k = g.k / count;
    p.num_pieces = count;
    p.offsets = offsets;
    Tiles(g, p, x, row, rows);
  }

 private:
  // Where sums wait between blocks of k.
  struct Sums {
    float* at;  // of row `row`, output 0; null: they never wait
    int64_t ld;
    int64_t row;

    float* At(int64_t r, int64_t output) const {
      return at == nullptr ? nullptr : at + (r - row) * ld + output;
    }
  };

  struct Part {
    const float* w;  // panel 0, at k0
    int64_t panel_floats;
    int64_t k;  // steps, of each piece
    bool first, last;
    int64_t n;
    int64_t ld_y, ld_x;
    const Epilogue* epilogue;
    float* y;  // row 0, output 0
    Bf16* y_bf16;
    Sums sums;
    int64_t panel_end;
    const float* ahead;  // asked for, never read: so many floats a step of k
    int64_t ahead_step;
    int64_t num_pieces = 1;
    const int64_t* offsets = nullptr;  // of pieces in a row of x; null: 0
    QuickEpilogue<V> quick{};          // of the last block's sums
  };

  static Part PartOf(const GemmArgs& g, int64_t ld_x, int64_t k0, int64_t k1) {
    const int64_t panel_floats =
        g.panel_floats != 0 ? g.panel_floats : g.k * kPanel;
    Part p{.w = g.w + k0 * kPanel,
           .panel_floats = panel_floats,
           .k = k1 - k0,
           .first = k0 == 0,
           .last = k1 == g.k,
           .n = g.n,
           .ld_y = g.ld_y,
           .ld_x = ld_x,
           .epilogue = &g.epilogue,
           .y = g.y,
           .y_bf16 = g.y_bf16,
           .sums = {g.y, g.ld_y, 0},
           .panel_end = g.panel_end,
           .ahead = g.w,
           .ahead_step = kPanel};
    if (p.last) p.quick = QuickEpilogue<V>(g.epilogue);
    return p;
  }

  static void Tiles(const GemmArgs& g, Part& p, const float* x, int64_t row,
                    int64_t rows) {
    const int64_t tiles = (rows + S::kRows - 1) / S::kRows;
    const int64_t share = tiles > kLines ? (kPanel + tiles - 1) / tiles : kLine;
    int64_t done = 0;
    int take = TileRows(rows);
    for (int64_t panel = g.panel_begin; panel < g.panel_end;) {
      // What the next tile will add to or overwrite is on its way meanwhile.
      const int64_t next_done = done + take < rows ? done + take : 0;
      const int64_t next_panel = next_done > 0 ? panel : panel + 1;
      const int next_take = TileRows(rows - next_done);
      if (next_panel < g.panel_end) {
        AskFor(p, row + next_done, next_take, next_panel);
      }
      AskAhead(g, p, x, share, done, next_done, panel);
      if (p.n - panel * kPanel <= V::kLanes) {
        Wide<S::kRows, 1>(p, take, x + done * p.ld_x, row + done, panel);
      } else {
        Wide<S::kRows, S::kVectors>(p, take, x + done * p.ld_x, row + done,
                                    panel);
      }
      done = next_done;
      panel = next_panel;
      take = next_take;
    }
  }

  // What each step of k asks for. The first panel, which finds x in memory if
  // it is a map that some other layer wrote: the rows of the next tile (such
  // runs are too short for the hardware). The others: the weights of the next
  // panel, or of the first one's next steps of k. The tiles of a panel share
  // these lines evenly: a core can wait for a few lines of far memory at once.
  // `share`: floats of a panel's step that a tile asks for.
  static void AskAhead(const GemmArgs& g, Part& p, const float* x,
                       int64_t share, int64_t done, int64_t next_done,
                       int64_t panel) {
    const bool rows_are_one_run = p.ld_x == p.k && p.offsets == nullptr;
    if (panel == g.panel_begin && next_done > 0 && rows_are_one_run) {
      p.ahead = x + next_done * p.ld_x;
      p.ahead_step = S::kRows;
      return;
    }
    const int64_t steps = p.k * p.num_pieces;
    const float* next = p.w + (panel + 1) * p.panel_floats;
    if (panel + 1 == g.panel_end) {
      next = (p.last ? g.w : p.w + steps * kPanel) +
             g.panel_begin * p.panel_floats;
    }
    p.ahead_step = share;
    p.ahead = next + (done + S::kRows - 1) / S::kRows * steps * share;
  }

  static constexpr int kSliver = 4;
  static constexpr int64_t kLine = 16;  // floats of a cache line
  static constexpr int64_t kLines = kPanel / kLine;
  // Enough sums on the way to hide an fma's latency, as many as fit in
  // registers.
  static constexpr int kSums = S::kRows * S::kVectors;
  template <int kR>
  static constexpr int kPanelsFor = kSums / (kR * S::kVectors) > 4
                                        ? 4
                                        : kSums / (kR * S::kVectors);

  // Two middling tiles rather than a full one and a sliver.
  static int TileRows(int64_t left) {
    if (left > S::kRows && left < S::kRows + kSliver) left = (left + 1) / 2;
    return static_cast<int>(SmallerOf(left, S::kRows));
  }

  // Into L2: rows of y often lie so far apart that L1 could not keep them
  // beside each other, and asking for L1 takes from the few misses that it can
  // have. Always inlined: g++ leaves out calls of functions that only ask.
  [[gnu::always_inline]] static void AskFor(const Part& p, int64_t row,
                                            int rows, int64_t panel) {
    const int64_t n0 = panel * kPanel;
    const int64_t live = SmallerOf(p.n - n0, kPanel);
    const Epilogue& e = *p.epilogue;
    if (p.last && e.residual != nullptr) {
      AskFor(e.residual + row * e.ld_residual + n0, e.ld_residual, rows, live);
    }
    if (S::kRounds && p.last && e.residual_bf16 != nullptr) {
      AskFor(e.residual_bf16 + row * e.ld_residual + n0, e.ld_residual, rows,
             live);
    }
    if (S::kRounds && p.y_bf16 != nullptr) {
      AskFor(p.y_bf16 + row * p.ld_y + n0, p.ld_y, rows, live);
    } else {
      AskFor(p.y + row * p.ld_y + n0, p.ld_y, rows, live);
    }
  }
  template <class T>
  [[gnu::always_inline]] static void AskFor(const T* at, int64_t ld, int rows,
                                            int64_t live) {
    for (int r = 0; r < rows; ++r, at += ld) {
      __builtin_prefetch(at, 0, 2);
      __builtin_prefetch(at + live - 1, 0, 2);
    }
  }

  // Tiles of all widths of rows, chosen at run time.
  template <int kR, int kNv>
  static void Wide(const Part& p, int rows, const float* x, int64_t row,
                   int64_t panel) {
    if constexpr (kR > 1) {
      if (rows < kR) return Wide<kR - 1, kNv>(p, rows, x, row, panel);
    }
    Tile<kR, kNv>(p, x, row, panel);
  }

  static void Few(const Part& p, int rows, const float* x, int64_t row,
                  int64_t panel) {
    static_assert(kFewRows == 4);
    if (rows == 4) return Side<4>(p, x, row, panel);
    if (rows == 3) return Side<3>(p, x, row, panel);
    if (rows == 2) return Side<2>(p, x, row, panel);
    Side<1>(p, x, row, panel);
  }

  template <int kR>
  static void Side(const Part& p, const float* x, int64_t row, int64_t panel) {
    constexpr int kP = kPanelsFor<kR>;
    for (; panel + kP <= p.panel_end; panel += kP)
      Tile<kR, kP * S::kVectors>(p, x, row, panel);
    for (; panel < p.panel_end; ++panel)
      Tile<kR, S::kVectors>(p, x, row, panel);
  }

  // kR rows by kNv vectors, of several panels or of a part of one.
  template <int kR, int kNv>
  static void Tile(const Part& p, const float* x, int64_t row, int64_t panel) {
    constexpr int64_t kWidth = kNv * V::kLanes;
    const int64_t n0 = panel * kPanel;
    const int64_t live = SmallerOf(p.n - n0, kWidth);
    const bool whole = live == kWidth;
    float* waiting = p.sums.At(row, n0);
    const int64_t ld_waiting = p.sums.ld;
    // The links before the one that acc is of, if there are any.
    const float* before = p.first ? nullptr : waiting;
    int64_t ld_before = ld_waiting;
    alignas(64) float sums[kR * kWidth];
    F acc[kR][kNv];
    ClearSums<V>(acc);
    const float* w = p.w + panel * p.panel_floats;
    const float* ahead = p.ahead;
    int64_t left = kDenseLink;
    for (int64_t i = 0; i < p.num_pieces; ++i) {
      const float* from = p.offsets == nullptr ? x : x + p.offsets[i];
      for (int64_t k = p.k; k > 0;) {
        if (left == 0) {
          AddSums<V>(before, ld_before, before == sums ? kWidth : live, acc);
          StoreSums<V>(acc, sums, kWidth);
          ClearSums<V>(acc);
          before = sums;
          ld_before = kWidth;
          left = kDenseLink;
        }
        const int64_t steps = SmallerOf(k, left);
        Multiply<kR, kNv>(p, steps, from, w, ahead, acc);
        from += steps;
        w += steps * kPanel;
        ahead += steps * p.ahead_step;
        k -= steps;
        left -= steps;
      }
    }
    AddSums<V>(before, ld_before, before == sums ? kWidth : live, acc);
    if (!p.last && whole) return StoreSums<V>(acc, waiting, ld_waiting);
    if (whole && p.quick.takes())
      return FinishQuickly<kR, kNv>(p, row, n0, acc);
    StoreSums<V>(acc, sums, kWidth);
    Epilogue e = p.last ? From(*p.epilogue, row, n0) : Epilogue{};
    if constexpr (S::kRounds) {
      alignas(64) float residual[kR * kWidth];
      if (e.residual_bf16 != nullptr) Widen<kR, kWidth>(live, residual, e);
      if (p.last && p.y_bf16 != nullptr) {
        Finish<V>::Run(sums, kWidth, kR, live, e, sums, kWidth);
        Bf16* y = p.y_bf16 + row * p.ld_y + n0;
        for (int r = 0; r < kR; ++r) {
          S::Copy(sums + r * kWidth, live, y + r * p.ld_y);
        }
        return;
      }
      return Finish<V>::Run(sums, kWidth, kR, live, e, waiting, ld_waiting);
    }
    Finish<V>::Run(sums, kWidth, kR, live, e, waiting, ld_waiting);
  }

  // Rows of the residual as floats.
  template <int kR, int64_t kWidth>
  static void Widen(int64_t live, float* rows, Epilogue& e) {
    for (int r = 0; r < kR; ++r) {
      const Bf16* from = e.residual_bf16 + r * e.ld_residual;
      for (int64_t c = 0; c < live; c += V::kLanes) {
        V::StoreFirst(rows + r * kWidth + c, live - c,
                      V::LoadFirst(from + c, live - c));
      }
    }
    e.residual = rows;
    e.ld_residual = kWidth;
  }

  template <int kR, int kNv>
  static void FinishQuickly(const Part& p, int64_t row, int64_t n0,
                            F (&acc)[kR][kNv]) {
    const auto load = [](const auto* at) { return V::Load(at); };
    p.quick.Apply(row, n0, load, acc);
    if constexpr (S::kRounds) {
      if (p.y_bf16 != nullptr) {
        Bf16* y = p.y_bf16 + row * p.ld_y + n0;
#pragma GCC unroll 16
        for (int r = 0; r < kR; ++r, y += p.ld_y) {
#pragma GCC unroll 16
          for (int v = 0; v < kNv; ++v) {
            S::Round(acc[r][v], y + v * V::kLanes);
          }
        }
        return;
      }
    }
    float* y = p.y + row * p.ld_y + n0;
#pragma GCC unroll 16
    for (int r = 0; r < kR; ++r, y += p.ld_y) {
#pragma GCC unroll 16
      for (int v = 0; v < kNv; ++v) {
        V::Store(y + v * V::kLanes, acc[r][v]);
      }
    }
  }

  // acc += x * w over so many steps.
  template <int kR, int kNv>
  static void Multiply(const Part& p, int64_t steps, const float* x,
                       const float* w, const float* ahead, F (&acc)[kR][kNv]) {
    // Rows in threes behind one pointer each: few enough registers, and
    // addresses that an instruction can form.
    constexpr int kThrees = (kR + 2) / 3;
    const float* rows[kThrees];
#pragma GCC unroll 16
    for (int t = 0; t < kThrees; ++t) rows[t] = x + 3 * t * p.ld_x;
    constexpr int kTake = kNv <= S::kVectors && kR > 4 ? S::kUnroll : 1;
    if (kTake > 1 && steps % kTake == 0) {
      Loop<kTake>(p, steps, rows, w, ahead, acc);
    } else {
      Loop<1>(p, steps, rows, w, ahead, acc);
    }
  }

  // kTake steps at a time: with two, links end where the CPU foresees it.
  template <int kTake, int kR, int kNv, int kThrees>
  [[gnu::always_inline]] static void Loop(const Part& p, int64_t steps,
                                          const float* (&rows)[kThrees],
                                          const float* w, const float* ahead,
                                          F (&acc)[kR][kNv]) {
    for (int64_t i = 0; i < steps; i += kTake) {
#pragma GCC unroll 16
      for (int s = 0; s < kTake; ++s) {
        F b[kNv];
#pragma GCC unroll 16
        for (int v = 0; v < kNv; ++v) {
          b[v] = V::Load(w + v / S::kVectors * p.panel_floats +
                         v % S::kVectors * V::kLanes);
        }
#pragma GCC unroll 16
        for (int r = 0; r < kR; ++r) {
          const F a = V::Set(rows[r / 3][r % 3 * p.ld_x + s]);
#pragma GCC unroll 16
          for (int v = 0; v < kNv; ++v) {
            acc[r][v] = S::MulAdd(a, b[v], acc[r][v]);
          }
        }
        w += kPanel;
        if constexpr (kNv <= S::kVectors) {
          __builtin_prefetch(ahead, 0, 2);
          ahead += p.ahead_step;
        }
      }
#pragma GCC unroll 16
      for (int t = 0; t < kThrees; ++t) rows[t] += kTake;
    }
  }
};

}  // namespace
}  // namespace millrace::models
