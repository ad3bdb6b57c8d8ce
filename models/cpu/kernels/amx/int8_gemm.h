// Products of rows of bytes and packed panels in tiles, AMX's two-dimensional
// registers. Written once over a type `Tiles`: the instructions of the CPU
// (cpu_tiles.h), or a plain emulation of them in a test.
//
// A block is 32 rows x 32 outputs in four tiles of sums, 64 bytes of k a step:
//
//   tile     4: weights 0-15    5: weights 16-31
//   2: rows  0-15          0               1
//   3: rows 16-31          6               7
//
// Rows are read where they lie, or as runs of k that lie apart. Weights are the
// panels of kernels/dense_int8/panels.h, k filled up with zeros to whole steps:
// 16 groups of a panel, two lines each, are the two tiles of a step, side by
// side. So vectors can multiply by the same panels where there are few rows.
//
// Sums go to memory, and the next block's products run while vectors turn them
// into bytes: both units work at once.
//
// S is what kernels/dense_int8/gemm.h says, of 16 lanes. Anonymous namespace.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/cpu/kernels/amx/int8_finish.h"
#include "models/cpu/kernels/amx/tile_config.h"
#include "models/cpu/kernels/dense_int8/epilogue.h"

namespace millrace::models {
namespace {

template <class S, class Tiles>
class Int8TileGemm {
 public:
  static constexpr int64_t kStep = 64;  // bytes of k
  static constexpr int64_t kTileRows = 16;
  static constexpr int64_t kBlockRows = 32;  // and outputs of a panel
  static constexpr int64_t kStepBytes = kStep * kBlockRows;  // of a panel

  struct Job {
    const int8_t* w;  // packed
    int64_t n;
    int64_t steps;
    int64_t panel_begin;
    int64_t panel_end;
    Int8Out out;  // row 0, output 0
    const Int8Epilogue* epilogue;
    // Whether results are more than stay in L2: then their lines are asked for.
    bool asks = false;
  };

  // Memory that is read next: rows of so many bytes.
  struct Wanted {
    const char* from = nullptr;
    int64_t rows = 0;
    int64_t bytes = 0;
    int64_t ld = 0;
  };

  // A part of the k of all rows, whole steps; x is that of row 0.
  struct Run {
    const uint8_t* x;
    int64_t steps;
  };
  // Rows that lie ld bytes apart, whose k is the runs one after the other. They
  // are those of y from `first` on or, where there is a list, row_of[i], which
  // may be none: -1. Runs must live as long as the call, the list until the
  // results are written.
  struct Rows {
    const Run* runs = nullptr;
    int64_t num_runs = 0;
    int64_t ld = 0;
    int64_t count = 0;
    int64_t first = 0;
    const int32_t* row_of = nullptr;
  };

  // The tiles are this object's until Finish.
  Int8TileGemm(Tiles& tiles, const Job& job)
      : tiles_(tiles),
        job_(job),
        finish_(*job_.epilogue, job_.out, job_.n, job_.panel_begin * kBlockRows,
                SmallerOf(job_.n, job_.panel_end * kBlockRows)) {
    TileConfig config;
    for (int tile = 0; tile < 8; ++tile) config.Shape(tile, 16, 64);
    tiles_.Configure(config);
  }
  Int8TileGemm(const Int8TileGemm&) = delete;
  Int8TileGemm& operator=(const Int8TileGemm&) = delete;

  // Each row can be read to the end of its last step, and 16 if there are
  // fewer. The last results are written by Flush or Finish. What is `wanted`
  // comes to the cache meanwhile.
  void Multiply(const Rows& x, const Wanted& wanted) {
    const int64_t panel_bytes = job_.steps * kStepBytes;
    const int64_t panels = job_.panel_end - job_.panel_begin;
    const int64_t rows = x.count;
    const int64_t steps = (rows + kBlockRows - 1) / kBlockRows * job_.steps;
    Block block{};
    block.rows = &x;
    block.streams = panels * panel_bytes <= kBytesInL1 ? Stream::kNone
                    : rows <= kRowsInL1                ? Stream::kWeights
                    : x.num_runs > 1                   ? Stream::kNone
                                                       : Stream::kRows;
    block.fetch = Fetch(wanted, steps * panels);
    for (int64_t panel = job_.panel_begin; panel < job_.panel_end; ++panel) {
      block.w = job_.w + panel * panel_bytes;
      if (panels * panel_bytes > kBytesInL2 && panel + 1 < job_.panel_end) {
        block.panel_fetch =
            Fetch({reinterpret_cast<const char*>(block.w) + panel_bytes, 1,
                   panel_bytes, 0},
                  steps);
      }
      for (int64_t done = 0; done < rows;) {
        const int64_t left = rows - done;
        // The last rows make whole tiles with some that are finished already.
        const int64_t take =
            left > kTileRows && rows >= kBlockRows ? kBlockRows : kTileRows;
        const int64_t first = left < take && rows > take ? rows - take : done;
        block.at = first * x.ld;
        RunBlock(
            block,
            {x.first + first, x.row_of == nullptr ? nullptr : x.row_of + first,
             panel * kBlockRows, done - first, SmallerOf(take, rows - first)});
        done = first + take;
      }
    }
  }

  // Writes what the last block left.
  void Flush() {
    while (pending_.at < pending_.end) FinishSome();
  }
  // Writes what the last block left and gives the tiles back. No destructor
  // does it: what unwinds stacks would bring a symbol that a linker may merge.
  void Finish() {
    Flush();
    tiles_.Release();
  }

 private:
  // So many rows stay in L1 while panels stream past them; with more it is the
  // other way round.
  static constexpr int64_t kRowsInL1 = 64;
  // Of weights: as many stay in L1 beside rows, and in L2.
  static constexpr int64_t kBytesInL1 = 20 << 10;
  static constexpr int64_t kBytesInL2 = 1 << 20;
  static constexpr int kChunk = Int8TileFinish<S>::kRows;

  // Where the sums of a block belong: y's row, or the list of its rows, and
  // output of its first ones, and which of its rows are wanted.
  struct Place {
    int64_t row = 0;
    const int32_t* row_of = nullptr;
    int64_t output = 0;
    int64_t at = 0;
    int64_t end = 0;
  };
  // Asks for memory a few lines at a time.
  class Fetch {
   public:
    Fetch() = default;
    // Within so many steps.
    Fetch(const Wanted& wanted, int64_t steps)
        : left_(wanted),
          lines_((wanted.rows * ((wanted.bytes + 63) / 64) + steps - 1) /
                 steps) {}
    void Some() {
      for (int64_t i = 0; i < lines_ && left_.rows > 0; ++i) {
        __builtin_prefetch(left_.from + at_, 0, 2);
        at_ += 64;
        if (at_ < left_.bytes) continue;
        at_ = 0;
        left_.from += left_.ld;
        --left_.rows;
      }
    }

   private:
    Wanted left_;
    int64_t at_ = 0;
    int64_t lines_ = 0;
  };

  // What is loaded for one use: it takes no room in L1.
  enum class Stream { kNone, kRows, kWeights };

  struct Block {
    const Rows* rows;
    int64_t at;  // of its first row, in bytes
    const int8_t* w;
    Stream streams;
    Fetch fetch;
    Fetch panel_fetch;
  };

  void RunBlock(Block& block, const Place& place) {
    const bool half = job_.n - place.output <= 16;
    const bool two = place.end > kTileRows;
    if (two) {
      half ? Products<2, 1>(block, place) : Products<2, 2>(block, place);
    } else {
      half ? Products<1, 1>(block, place) : Products<1, 2>(block, place);
    }
    int32_t* const sums = sums_[which_];
    tiles_.template Store<0>(sums, 128);
    if (!half) tiles_.template Store<1>(sums + 16, 128);
    if (two) tiles_.template Store<6>(sums + 512, 128);
    if (two && !half) tiles_.template Store<7>(sums + 512 + 16, 128);
    pending_ = place;
    which_ ^= 1;
  }

  template <int kA, int kB>
  void Products(Block& block, const Place& own) {
    switch (block.streams) {
      case Stream::kNone:
        return Steps<kA, kB, Stream::kNone>(block, own);
      case Stream::kRows:
        return Steps<kA, kB, Stream::kRows>(block, own);
      case Stream::kWeights:
        return Steps<kA, kB, Stream::kWeights>(block, own);
    }
  }

  template <int kTile, bool kStreams>
  void Load(const void* from, int64_t ld) {
    if constexpr (kStreams) {
      tiles_.template LoadStreamed<kTile>(from, ld);
    } else {
      tiles_.template Load<kTile>(from, ld);
    }
  }

  // kA tiles of rows by kB of outputs, which `own` says the place of; the sums
  // of the block before are finished evenly over the steps.
  template <int kA, int kB, Stream kStream>
  void Steps(Block& block, const Place& own) {
    constexpr bool kRows = kStream == Stream::kRows;
    constexpr bool kWeights = kStream == Stream::kWeights;
    tiles_.template Zero<0>();
    if constexpr (kB == 2) tiles_.template Zero<1>();
    if constexpr (kA == 2) tiles_.template Zero<6>();
    if constexpr (kA == 2 && kB == 2) tiles_.template Zero<7>();
    const int8_t* w = block.w;
    const int64_t ld_x = block.rows->ld;
    const int64_t chunks = (pending_.end - pending_.at + kChunk - 1) / kChunk;
    const int64_t steps = job_.steps;
    const int64_t asks = job_.asks ? (own.end - own.at + steps - 1) / steps : 0;
    int64_t asked = own.at;
    int64_t due = 0;
    // Copies: the compiler takes it that instructions on tiles write to memory.
    Fetch fetch = block.fetch;
    Fetch panel_fetch = block.panel_fetch;
    for (int64_t i = 0; i < block.rows->num_runs; ++i) {
      const Run run = block.rows->runs[i];
      const uint8_t* x = run.x + block.at;
      for (int64_t step = 0; step < run.steps; ++step) {
        Load<4, kWeights>(w, 128);
        Load<2, kRows>(x, ld_x);
        tiles_.template DotUnsignedSigned<0, 2, 4>();
        if constexpr (kB == 2) {
          Load<5, kWeights>(w + 64, 128);
          tiles_.template DotUnsignedSigned<1, 2, 5>();
        }
        if constexpr (kA == 2) {
          Load<3, kRows>(x + kTileRows * ld_x, ld_x);
          tiles_.template DotUnsignedSigned<6, 3, 4>();
          if constexpr (kB == 2) tiles_.template DotUnsignedSigned<7, 3, 5>();
        }
        x += kStep;
        w += kStepBytes;
        fetch.Some();
        panel_fetch.Some();
        if (asks > 0) {
          AskFor(own, asked, asks);
          asked += asks;
        }
        for (due += chunks; due >= steps; due -= steps) FinishSome();
      }
    }
    block.fetch = fetch;
    block.panel_fetch = panel_fetch;
    Flush();
  }

  // What so many rows of a block are finished with.
  void AskFor(const Place& own, int64_t row, int64_t rows) const {
    const int64_t end = SmallerOf(row + rows, own.end);
    for (; row < end; ++row) {
      const int64_t at =
          own.row_of == nullptr ? own.row + row : own.row_of[row];
      if (at >= 0) finish_.AskFor(at, own.output);
    }
  }

  // Some of the pending rows.
  void FinishSome() {
    const int64_t rows = SmallerOf(pending_.end - pending_.at, kChunk);
    const int32_t* sums = sums_[which_ ^ 1] + pending_.at * kBlockRows;
    if (pending_.row_of == nullptr) {
      finish_.Run(sums, pending_.row + pending_.at, pending_.output, rows);
    } else {
      FinishListed(sums, pending_.row_of + pending_.at, rows);
    }
    pending_.at += rows;
  }
  // Neighbours of the list that are neighbours in y go together.
  void FinishListed(const int32_t* sums, const int32_t* row_of, int64_t rows) {
    for (int64_t i = 0; i < rows;) {
      int64_t run = 1;
      if (row_of[i] >= 0) {
        while (i + run < rows && row_of[i + run] == row_of[i] + run) ++run;
        finish_.Run(sums + i * kBlockRows, row_of[i], pending_.output, run);
      }
      i += run;
    }
  }

  Tiles& tiles_;
  const Job job_;
  const Int8TileFinish<S> finish_;
  Place pending_;
  int which_ = 0;  // the sums that the next block writes
  alignas(64) int32_t sums_[2][kBlockRows * kBlockRows];
};

}  // namespace
}  // namespace millrace::models
