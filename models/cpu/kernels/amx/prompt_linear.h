// y = W x for rows of prompts: integer weights become bf16 panels once for many
// tokens, and bf16 rows meet them in tiles. BF16 weights are panels as they
// lie. Over a type `Tiles` as cpu_tiles.h.
//
// Up to 768 columns, a panel of two groups stays in L1 while all tokens pass.
// Beyond, neither that panel nor all tokens' rows would stay where they are
// quick: 16 groups are converted for a run of 512 columns, and sums wait in
// scratch between runs. Neither shows in the bits (see bf16_panels.h).
#pragma once

#include "models/cpu/kernels/amx/bf16_panels.h"
#include "models/cpu/kernels/amx/weight_panels.h"

namespace millrace::models {
namespace {

// How a call is cut; the same for any number of tokens and groups but for what
// is less than a whole chunk.
struct PromptCut {
  int64_t run_columns;
  int64_t chunk_groups;
  int64_t chunk_tokens;

  static PromptCut Of(int64_t k) {
    constexpr int64_t kNarrowColumns = 768;
    if (k <= kNarrowColumns) return {k, 2, 512};
    return {512, 16, 512};
  }
  int64_t PanelBytes(WeightFormat format) const {
    if (format == WeightFormat::kBF16) return 0;
    return chunk_groups * (run_columns / kStepColumns) * kStepBytes;
  }
  int64_t SumBytes(int64_t k, int64_t num_rows) const {
    if (k <= run_columns) return 0;
    const int64_t tokens = num_rows < chunk_tokens ? num_rows : chunk_tokens;
    const int64_t blocks = (tokens + kBlockTokens - 1) / kBlockTokens;
    return chunk_groups / 2 * blocks * kBlockFloats * 4;
  }
};

// The parts of `count` that are no larger than `most`, as even as multiples of
// `unit` allow: the size of all but the last.
inline int64_t EvenShare(int64_t count, int64_t most, int64_t unit) {
  const int64_t parts = (count + most - 1) / most;
  return ((count + parts - 1) / parts + unit - 1) / unit * unit;
}

inline bool HasPromptLinear(const PackedMatrix& w) {
  if (w.format == WeightFormat::kBF16) return w.k % kStepColumns == 0;
  return ToTilesOf(w.format) != nullptr;
}

inline int64_t PromptScratchBytes(const PackedMatrix& w, int32_t num_rows) {
  if (!HasPromptLinear(w)) return 0;
  const PromptCut cut = PromptCut::Of(w.k);
  return cut.PanelBytes(w.format) + cut.SumBytes(w.k, num_rows);
}

template <typename Tiles>
class PromptProduct {
 public:
  PromptProduct(Tiles& tiles, const PackedMatrix& w, int64_t num_rows, float* y,
                int64_t ld_y, void* scratch)
      : tiles_(tiles),
        shape_(tiles),
        w_(w),
        num_rows_(num_rows),
        to_tiles_(ToTilesOf(w.format)),
        cut_(PromptCut::Of(w.k)),
        y_(y),
        ld_y_(ld_y),
        far_outputs_(Outputs::AreFar(num_rows, w.n)),
        panel_(static_cast<uint8_t*>(scratch)),
        sums_(reinterpret_cast<float*>(panel_ + cut_.PanelBytes(w.format))) {}

  void Run(int64_t group_begin, int64_t group_end, const ActRows& act) {
    if (group_begin >= group_end || num_rows_ <= 0) return;
    const int64_t tokens =
        EvenShare(num_rows_, cut_.chunk_tokens, kBlockTokens);
    const int64_t groups =
        EvenShare(group_end - group_begin, cut_.chunk_groups, 2);
    for (int64_t token = 0; token < num_rows_; token += tokens) {
      const int64_t left = num_rows_ - token;
      const TokenRows rows = {act.bf16 + token * act.ld_bf16, act.ld_bf16,
                              left < tokens ? left : tokens};
      for (int64_t g = group_begin; g < group_end; g += groups) {
        const int64_t end = g + groups < group_end ? g + groups : group_end;
        RunGroups(g, end, token, rows);
      }
    }
    shape_.Release();
  }

 private:
  // A chunk of groups by a chunk of tokens, all columns.
  void RunGroups(int64_t group_begin, int64_t group_end, int64_t token,
                 const TokenRows& rows) {
    for (int64_t k = 0; k < w_.k; k += cut_.run_columns) {
      const int64_t left = w_.k - k;
      const int64_t columns = left < cut_.run_columns ? left : cut_.run_columns;
      const Tiled tiled = ConvertRun(group_begin, group_end, k, columns);
      const TokenRows from = {rows.x + k, rows.ld_x, rows.num_rows};
      float* sums = sums_;
      for (int64_t g = group_begin; g < group_end; g += 2) {
        const Panel panel = {
            tiled.tiles + (g - group_begin) * tiled.group_bytes,
            tiled.group_bytes, group_end - g > 1 ? 2 : 1,
            columns / kStepColumns};
        const ColumnRun run = {k == 0, k + columns == w_.k, sums};
        const Outputs out = {y_ + token * ld_y_ + g * 16, ld_y_, w_.n - g * 16,
                             far_outputs_};
        MultiplyPanel(tiles_, shape_, from, panel, run, out);
        sums +=
            (rows.num_rows + kBlockTokens - 1) / kBlockTokens * kBlockFloats;
      }
    }
  }

  struct Tiled {
    const uint8_t* tiles;  // of the first group
    int64_t group_bytes;
  };
  // A run of columns of some groups in tile order.
  Tiled ConvertRun(int64_t group_begin, int64_t group_end, int64_t column,
                   int64_t columns) {
    const uint8_t* from =
        static_cast<const uint8_t*>(w_.data) + group_begin * w_.group_bytes;
    if (to_tiles_ == nullptr) {
      return {from + column / kStepColumns * kStepBytes, w_.group_bytes};
    }
    const int64_t block_columns = ShapeOf(w_.format).columns;
    from += column / block_columns * Pack16::BlockBytes(w_.format);
    // What is converted next: the rest of the group, or a neighbour's same run.
    const int64_t ahead = columns == w_.k ? kAhead : w_.group_bytes;
    const int64_t group_bytes = columns / kStepColumns * kStepBytes;
    for (int64_t g = 0; g < group_end - group_begin; ++g) {
      to_tiles_(from + g * w_.group_bytes, columns / block_columns, ahead,
                panel_ + g * group_bytes);
    }
    return {panel_, group_bytes};
  }

  Tiles& tiles_;
  BlockTiles<Tiles> shape_;
  const PackedMatrix& w_;
  const int64_t num_rows_;
  const ToTiles to_tiles_;  // null: BF16
  const PromptCut cut_;
  float* const y_;
  const int64_t ld_y_;
  const bool far_outputs_;
  uint8_t* const panel_;  // [chunk_groups][steps of a run] tiles
  float* const sums_;     // [pairs of groups][blocks of tokens][kBlockFloats]
};

template <typename Tiles>
bool RunPromptLinear(Tiles& tiles, const PackedMatrix& w, int64_t group_begin,
                     int64_t group_end, const ActRows& act, int32_t num_rows,
                     float* y, int64_t ld_y, void* scratch) {
  if (!HasPromptLinear(w)) return false;
  PromptProduct<Tiles>(tiles, w, num_rows, y, ld_y, scratch)
      .Run(group_begin, group_end, act);
  return true;
}

}  // namespace
}  // namespace millrace::models
