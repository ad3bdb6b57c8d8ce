// Products of bf16 rows and packed panels in tiles: blocks of 32 rows by 32
// outputs, two tiles of rows by two of outputs, whose sums stay in tiles over
// all of k. Templates over a type `Tiles`, see cpu_tiles.h.
//
// Where all panels stay in L2 and the rows of a block in L1, panels stream past
// a block of rows, and results are written row after row. Elsewhere rows stream
// past a panel, which is read again for each block. What streams is loaded as
// what is read once (but for taps of convolutions, which read the same lines
// again), and the other stays in L1. The ending of a block stands between the
// products of the next one, step by step, and so do requests for what comes
// next from beyond L2, rows or a panel: those of all of it at once would wait
// for each other.
//
// All tiles are full: rows and steps of k that do not fill one must be readable
// all the same. What stands in rows beyond the last is multiplied and dropped;
// what stands in steps beyond the last must be 0.
//
// Anonymous namespace.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "models/cpu/kernels/amx/dense_ending.h"
#include "models/cpu/kernels/amx/tile_config.h"

namespace millrace::models {
namespace {

// A part of the k of all rows: whole steps of 32 values, 64 bytes each.
struct StepRun {
  const uint8_t* at = nullptr;  // of row 0
  int64_t ld = 0;               // bytes from row to row
  int64_t steps = 0;
};

// Rows of a product, whose k is the runs one after the other.
struct RunRows {
  const StepRun* runs = nullptr;
  int64_t num_runs = 0;
};

template <class Tiles>
class DenseBlocks {
 public:
  static constexpr int64_t kTileRows = 16;
  static constexpr int64_t kRows = 2 * kTileRows;
  static constexpr int64_t kStep = 32;
  static constexpr int64_t kStepBytes = 64;         // of a row
  static constexpr int64_t kPanelStepBytes = 2048;  // of a panel

  static int64_t Steps(int64_t k) { return (k + kStep - 1) / kStep; }

  struct Panels {
    const uint8_t* w = nullptr;  // panel 0
    int64_t bytes = 0;           // from panel to panel
    int64_t begin = 0;
    int64_t end = 0;
    int64_t steps = 0;  // of k
  };

  DenseBlocks(Tiles& tiles, const Panels& panels, const Results& results)
      : tiles_(tiles), panels_(panels), results_(results) {
    TileConfig config;
    for (int i = 0; i < 8; ++i) config.Shape(i, kTileRows, kStepBytes);
    tiles_.Configure(config);
  }
  // At the end of each call. No destructor: it would need a symbol that all
  // object files share.
  void End() {
    ending_.Until(kRows);
    tiles_.Release();
  }
  DenseBlocks(const DenseBlocks&) = delete;
  DenseBlocks& operator=(const DenseBlocks&) = delete;

  // The first rows of a call in whole blocks, the others apart: they may be a
  // copy, so that a whole block can be read. Row i is row first + i of the
  // results or, where there is a list, row_of[i]. The list must live as long as
  // this object, or until Finish.
  struct Rows {
    RunRows whole;
    int64_t num_whole = 0;  // a multiple of kRows
    RunRows rest;
    int64_t num_rest = 0;  // up to kRows
    int64_t first = 0;
    const int32_t* row_of = nullptr;
    // Whether runs read the same lines again, one after the other.
    bool overlap = false;
    // Whether they lie where the step before left them: beyond L2, maybe.
    bool far = false;
  };
  void Multiply(const Rows& rows) {
    if (rows.num_whole == 0 && rows.num_rest <= kTileRows) {
      FewRows(rows);
    } else if (PanelsStream(rows)) {
      RowByRow(rows);
    } else {
      PanelByPanel(rows);
    }
  }

  // Of what was multiplied so far, nothing is left to be done.
  void Finish() { ending_.Until(kRows); }

 private:
  // Panels of more than this come from L3, or from memory.
  static constexpr int64_t kNearBytes = 1 << 20;
  // Of panels that stay in L2 beside rows and results, and in L1; of a block of
  // rows that stays in L1.
  static constexpr int64_t kPanelsInL2 = 512 << 10;
  static constexpr int64_t kPanelsInL1 = 16 << 10;
  static constexpr int64_t kRowsInL1 = 32 << 10;

  // What is loaded for one use: it takes no room in L1.
  enum class Streams { kNothing, kRows, kPanels };

  // Asks for rows of memory some lines at a time.
  class Ahead {
   public:
    Ahead() = default;
    // Within so many steps.
    Ahead(const uint8_t* at, int64_t rows, int64_t bytes, int64_t ld,
          int64_t steps)
        : at_(at),
          rows_(rows),
          bytes_(bytes),
          ld_(ld),
          lines_((rows * ((bytes + 63) / 64) + steps - 1) / steps) {}
    void Some() {
      for (int64_t i = 0; i < lines_ && rows_ > 0; ++i) {
        __builtin_prefetch(at_ + done_, 0, 2);
        done_ += 64;
        if (done_ < bytes_) continue;
        done_ = 0;
        at_ += ld_;
        --rows_;
      }
    }

   private:
    const uint8_t* at_ = nullptr;
    int64_t rows_ = 0;
    int64_t bytes_ = 0;
    int64_t ld_ = 0;
    int64_t lines_ = 0;  // at a time
    int64_t done_ = 0;   // bytes of the first row
  };

  int64_t PanelBytes() const {
    return (panels_.end - panels_.begin) * panels_.bytes;
  }
  bool PanelsStream(const Rows& rows) const {
    int64_t bytes = 0;
    const RunRows& some = rows.num_whole > 0 ? rows.whole : rows.rest;
    for (int64_t i = 0; i < some.num_runs; ++i) {
      const int64_t all = some.runs[i].steps * kStepBytes;
      bytes += kRows * (all < some.runs[i].ld ? all : some.runs[i].ld);
    }
    return bytes <= kRowsInL1 && PanelBytes() <= kPanelsInL2;
  }
  // Of the block at `row`, for all its steps.
  Ahead RowsAfter(const Rows& rows, int64_t row, int64_t steps) const {
    const int64_t next = row + kRows;
    if (!rows.far || next >= rows.num_whole) return {};
    const StepRun& run = rows.whole.runs[0];
    return {run.at + next * run.ld, kRows, run.steps * kStepBytes, run.ld,
            steps};
  }
  Ahead PanelAfter(int64_t panel, int64_t blocks) const {
    if (panel + 1 == panels_.end || PanelBytes() < kNearBytes) return {};
    return {panels_.w + (panel + 1) * panels_.bytes, 1,
            panels_.steps * kPanelStepBytes, 0, blocks * panels_.steps};
  }

  void RowByRow(const Rows& rows) {
    const bool streams = PanelBytes() > kPanelsInL1;
    const int64_t panels = panels_.end - panels_.begin;
    for (int64_t row = 0; row < rows.num_whole; row += kRows) {
      Ahead next_rows = RowsAfter(rows, row, panels * panels_.steps);
      for (int64_t panel = panels_.begin; panel < panels_.end; ++panel) {
        if (streams) {
          Block<true, Streams::kPanels>(rows.whole, row, kRows, rows, panel,
                                        next_rows);
        } else {
          Block<true, Streams::kNothing>(rows.whole, row, kRows, rows, panel,
                                         next_rows);
        }
      }
    }
    Ahead nothing;
    for (int64_t panel = panels_.begin; panel < panels_.end; ++panel) {
      RestBlock(rows, panel, nothing);
    }
  }

  void PanelByPanel(const Rows& rows) {
    const bool once = rows.num_whole > 2 * kRows && !rows.overlap;
    for (int64_t panel = panels_.begin; panel < panels_.end; ++panel) {
      const int64_t blocks =
          rows.num_whole / kRows + static_cast<int64_t>(rows.num_rest > 0);
      Ahead next_panel = PanelAfter(panel, blocks);
      for (int64_t row = 0; row < rows.num_whole; row += kRows) {
        if (once) {
          Block<true, Streams::kRows>(rows.whole, row, kRows, rows, panel,
                                      next_panel);
        } else {
          Block<true, Streams::kNothing>(rows.whole, row, kRows, rows, panel,
                                         next_panel);
        }
      }
      RestBlock(rows, panel, next_panel);
    }
  }
  void RestBlock(const Rows& rows, int64_t panel, Ahead& next) {
    if (rows.num_rest > kTileRows) {
      Block<true, Streams::kNothing>(rows.rest, 0, rows.num_rest, rows, panel,
                                     next);
    } else if (rows.num_rest > 0) {
      Block<false, Streams::kNothing>(rows.rest, 0, rows.num_rest, rows, panel,
                                      next);
    }
  }

  // What stands beside the products of a block, a share for each step. Copies,
  // since the compiler takes it that instructions on tiles write to memory: few
  // instructions between loads let more loads be under way.
  struct Beside {
    Ending& before;
    const Ending& own;
    Ahead next;
    int share;
    bool asks;
    int at = 0;

    void Step() {
      next.Some();
      if (asks) own.AskFor(at, at + share);
      at += share;
      before.Until(at);
    }
  };

  // `num_rows` rows of `from`, beginning with its row `row`, by one panel.
  template <bool kTwo, Streams kStreams>
  void Block(const RunRows& from, int64_t row, int64_t num_rows,
             const Rows& rows, int64_t panel, Ahead& next) {
    float* sums = sums_[turn_];
    turn_ ^= 1;
    const bool is_rest = &from == &rows.rest;
    const int64_t at = is_rest ? rows.num_whole : row;
    Ending own(results_, sums, static_cast<int>(num_rows), rows.first + at,
               rows.row_of == nullptr ? nullptr : rows.row_of + at,
               panel * Ending::kPanel);
    const int64_t share = (kRows + panels_.steps - 1) / panels_.steps;
    Beside beside{ending_, own, next, static_cast<int>(share), own.asks()};
    tiles_.template Zero<0>();
    tiles_.template Zero<1>();
    tiles_.template Zero<2>();
    tiles_.template Zero<3>();
    const uint8_t* b = panels_.w + panel * panels_.bytes;
    for (int64_t i = 0; i < from.num_runs; ++i) {
      const StepRun run = from.runs[i];
      const uint8_t* a = run.at + row * run.ld;
      const uint8_t* below = a + kTileRows * run.ld;
      for (int64_t step = 0; step < run.steps; ++step) {
        Load<6, kStreams == Streams::kPanels>(b, 128);
        Load<4, kStreams == Streams::kRows>(a, run.ld);
        tiles_.template DotBf16<0, 4, 6>();
        Load<7, kStreams == Streams::kPanels>(b + 64, 128);
        tiles_.template DotBf16<1, 4, 7>();
        if constexpr (kTwo) {
          Load<5, kStreams == Streams::kRows>(below, run.ld);
          tiles_.template DotBf16<2, 5, 6>();
          tiles_.template DotBf16<3, 5, 7>();
          below += kStepBytes;
        }
        beside.Step();
        a += kStepBytes;
        b += kPanelStepBytes;
      }
    }
    next = beside.next;
    ending_.Until(kRows);
    constexpr int64_t kLd = Ending::kPanel * 4;
    tiles_.template Store<0>(sums, kLd);
    tiles_.template Store<1>(sums + 16, kLd);
    if constexpr (kTwo) {
      tiles_.template Store<2>(sums + kTileRows * Ending::kPanel, kLd);
      tiles_.template Store<3>(sums + kTileRows * Ending::kPanel + 16, kLd);
    }
    ending_ = own;
  }

  // One tile of rows by two panels at a time: four sums hide the latency of a
  // product. Panels are read once, as fast as they come.
  void FewRows(const Rows& rows) {
    Finish();
    int64_t panel = panels_.begin;
    for (; panel + 2 <= panels_.end; panel += 2) FewRows<true>(rows, panel);
    if (panel < panels_.end) FewRows<false>(rows, panel);
  }
  template <bool kTwo>
  void FewRows(const Rows& rows, int64_t panel) {
    tiles_.template Zero<0>();
    tiles_.template Zero<1>();
    tiles_.template Zero<2>();
    tiles_.template Zero<3>();
    const uint8_t* b = panels_.w + panel * panels_.bytes;
    for (int64_t i = 0; i < rows.rest.num_runs; ++i) {
      const StepRun& run = rows.rest.runs[i];
      const uint8_t* a = run.at;
      for (int64_t step = 0; step < run.steps; ++step) {
        tiles_.template Load<4>(a, run.ld);
        tiles_.template Load<6>(b, 128);
        tiles_.template DotBf16<0, 4, 6>();
        tiles_.template Load<7>(b + 64, 128);
        tiles_.template DotBf16<1, 4, 7>();
        AskAhead(b);
        if constexpr (kTwo) {
          const uint8_t* beside = b + panels_.bytes;
          tiles_.template Load<6>(beside, 128);
          tiles_.template DotBf16<2, 4, 6>();
          tiles_.template Load<7>(beside + 64, 128);
          tiles_.template DotBf16<3, 4, 7>();
          AskAhead(beside);
        }
        a += kStepBytes;
        b += kPanelStepBytes;
      }
    }
    constexpr int64_t kLd = Ending::kPanel * 4;
    const auto finish = [&](const float* sums, int64_t of_panel) {
      Ending(results_, sums, static_cast<int>(rows.num_rest), rows.first,
             rows.row_of, of_panel * Ending::kPanel)
          .Until(kRows);
    };
    tiles_.template Store<0>(sums_[0], kLd);
    tiles_.template Store<1>(sums_[0] + 16, kLd);
    finish(sums_[0], panel);
    if constexpr (kTwo) {
      tiles_.template Store<2>(sums_[1], kLd);
      tiles_.template Store<3>(sums_[1] + 16, kLd);
      finish(sums_[1], panel + 1);
    }
  }
  static void AskAhead(const uint8_t* b) {
    constexpr int64_t kAhead = 8192;
#pragma GCC unroll 32
    for (int64_t line = 0; line < kPanelStepBytes; line += 64) {
      __builtin_prefetch(b + kAhead + line, 0, 3);
    }
  }

  template <int kTile, bool kStreams>
  void Load(const uint8_t* from, int64_t ld) {
    if constexpr (kStreams) {
      tiles_.template LoadStreamed<kTile>(from, ld);
    } else {
      tiles_.template Load<kTile>(from, ld);
    }
  }

  Tiles& tiles_;
  const Panels panels_;
  const Results results_;
  Ending ending_;  // of the block before
  int turn_ = 0;
  alignas(64) float sums_[2][kRows * Ending::kPanel];
};

}  // namespace
}  // namespace millrace::models
