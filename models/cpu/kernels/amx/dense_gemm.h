// Rows of a matrix times packed panels, in tiles: rows of bf16 are read where
// they lie, but for those that do not fill tiles, which are copied; rows of f32
// are rounded, as many at a time as stay in L2. Written over a type `Tiles`.
// Anonymous namespace.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/cpu/kernels/amx/dense_blocks.h"

namespace millrace::models {
namespace {

template <class Tiles>
class DenseRows {
  using Blocks = DenseBlocks<Tiles>;

 public:
  static int64_t Words(int64_t k) {
    return Blocks::Steps(k) * Blocks::kStep / 2;
  }

  // Rows that stay in L2 together, whole blocks: not less than weights of a
  // large layer should meet when they come from L3.
  static int64_t BlockRows(int64_t k) {
    constexpr int64_t kBytes = 512 << 10;
    constexpr int64_t kLeast = 4 * Blocks::kRows;
    constexpr int64_t kMost = 16 * Blocks::kRows;
    const int64_t fit = kBytes / LdBytes(k) / Blocks::kRows * Blocks::kRows;
    return fit < kLeast ? kLeast : fit > kMost ? kMost : fit;
  }
  // Copied rows are an odd number of lines long: they do not fall on each other
  // in the cache.
  static int64_t LdBytes(int64_t k) {
    return (Blocks::Steps(k) | 1) * Blocks::kStepBytes;
  }

  // `x` is args.x or args.x_bf16.
  template <class From>
  static void Run(Tiles& tiles, const GemmArgs& args, const From* x) {
    const int64_t steps = Blocks::Steps(args.k);
    const int64_t bytes = steps * Blocks::kPanelStepBytes;
    Blocks blocks(
        tiles,
        {.w = reinterpret_cast<const uint8_t*>(args.w),
         .bytes = args.panel_floats != 0 ? args.panel_floats * 4 : bytes,
         .begin = args.panel_begin,
         .end = args.panel_end,
         .steps = steps},
        {.y = args.y,
         .y_bf16 = args.y_bf16,
         .ld_y = args.ld_y,
         .n = args.n,
         .epilogue = &args.epilogue,
         .far = AreFar(args.y_bf16, args.ld_y, args.row_end - args.row_begin,
                       args.k)});
    const int64_t each = BlockRows(args.k);
    for (int64_t row = args.row_begin; row < args.row_end; row += each) {
      const int64_t left = args.row_end - row;
      Some(blocks, args, x + row * args.ld_x, row, left < each ? left : each);
    }
    blocks.End();
  }

  static int64_t ScratchFloats(const GemmArgs& args) {
    const int64_t each = BlockRows(args.k);
    const int64_t rows = WholeBlocks(args.row_end);
    return ((rows < each ? rows : each) + Blocks::kRows) * LdBytes(args.k) / 4;
  }

 private:
  static int64_t WholeBlocks(int64_t rows) {
    return (rows + Blocks::kRows - 1) / Blocks::kRows * Blocks::kRows;
  }

  // Values [k0, k) of some rows, and 0 until a step is full.
  template <class From>
  static void CopyRows(const From* x, int64_t ld_x, int64_t rows, int64_t k0,
                       int64_t k, uint8_t* to, int64_t ld) {
    const int64_t live = k - k0;
    const int64_t bytes = Blocks::Steps(live) * Blocks::kStepBytes;
    for (int64_t r = 0; r < rows; ++r, to += ld) {
      Bf16Factors::Copy(x + r * ld_x + k0, live,
                        reinterpret_cast<uint16_t*>(to));
      if (bytes > 2 * live)
        __builtin_memset(to + 2 * live, 0, bytes - 2 * live);
    }
  }

  static void Some(Blocks& blocks, const GemmArgs& args, const float* x,
                   int64_t row, int64_t rows) {
    auto* scratch = reinterpret_cast<uint8_t*>(args.scratch);
    const int64_t ld = LdBytes(args.k);
    CopyRows(x, args.ld_x, rows, 0, args.k, scratch, ld);
    const int64_t whole = rows / Blocks::kRows * Blocks::kRows;
    const StepRun copied{scratch, ld, Blocks::Steps(args.k)};
    const StepRun rest{scratch + whole * ld, ld, copied.steps};
    blocks.Multiply({.whole = {&copied, 1},
                     .num_whole = whole,
                     .rest = {&rest, 1},
                     .num_rest = rows - whole,
                     .first = row});
  }

  static void Some(Blocks& blocks, const GemmArgs& args, const Bf16* x,
                   int64_t row, int64_t rows) {
    auto* scratch = reinterpret_cast<uint8_t*>(args.scratch);
    const int64_t ld = LdBytes(args.k);
    const int64_t whole = rows / Blocks::kRows * Blocks::kRows;
    const int64_t full = args.k / Blocks::kStep;
    const int64_t tail = full * Blocks::kStep;  // where the last step begins
    StepRun runs[2] = {
        {reinterpret_cast<const uint8_t*>(x), args.ld_x * 2, full}};
    int64_t num_runs = full > 0 ? 1 : 0;
    if (tail < args.k) {
      uint8_t* last = scratch + Blocks::kRows * ld;
      CopyRows(x, args.ld_x, whole, tail, args.k, last, Blocks::kStepBytes);
      runs[num_runs++] = {last, Blocks::kStepBytes, 1};
    }
    CopyRows(x + whole * args.ld_x, args.ld_x, rows - whole, 0, args.k, scratch,
             ld);
    const StepRun rest{scratch, ld, Blocks::Steps(args.k)};
    blocks.Multiply({.whole = {runs, num_runs},
                     .num_whole = whole,
                     .rest = {&rest, 1},
                     .num_rest = rows - whole,
                     .first = row,
                     .far = true});
  }
};

}  // namespace
}  // namespace millrace::models
