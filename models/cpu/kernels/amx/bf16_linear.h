// y = W x for BF16 weights in tiles. The packing of 16 rows is tile order
// already, so groups are panels as they lie. Any number of tokens follows one
// chain, that of llm_kernels.h. Over a type `Tiles` as cpu_tiles.h.
//
// Where a panel is used again, long rows are cut into runs of columns that stay
// in L1. The columns after the last whole step are a run of their own, beside
// zeros.
#pragma once

#include "models/cpu/kernels/amx/bf16_panels.h"
#include "models/cpu/llm_kernels.h"

namespace millrace::models {
namespace {

template <typename Tiles>
class Bf16Linear {
 public:
  Bf16Linear(Tiles& tiles, const PackedMatrix& w, float* y, int64_t ld_y)
      : tiles_(tiles),
        shape_(tiles),
        w_(w),
        whole_columns_(w.k / kStepColumns * kStepColumns),
        y_(y),
        ld_y_(ld_y) {}

  void Run(int64_t group_begin, int64_t group_end, const ActRows& act,
           int64_t num_rows) {
    const int64_t tokens = ChunkTokens();
    const bool far = Outputs::AreFar(num_rows, w_.n);
    for (int64_t token = 0; token < num_rows; token += tokens) {
      const int64_t left = num_rows - token;
      const TokenRows rows = {act.bf16 + token * act.ld_bf16, act.ld_bf16,
                              left < tokens ? left : tokens};
      if (whole_columns_ < w_.k) KeepLastColumns(rows);
      for (int64_t g = group_begin; g < group_end; g += 2) {
        RunPair(g, group_end - g > 1 ? 2 : 1, token, rows, far);
      }
    }
    shape_.Release();
  }

 private:
  static constexpr int64_t kMaxTokens = 512;

  // Whole blocks of tokens whose rows are half a MiB: they stay in L2 beside
  // the caller's groups while all of these pass.
  int64_t ChunkTokens() const {
    constexpr int64_t kValues = 256 << 10;
    const int64_t tokens = kValues / w_.k / kBlockTokens * kBlockTokens;
    return tokens > kMaxTokens     ? kMaxTokens
           : tokens < kBlockTokens ? kBlockTokens
                                   : tokens;
  }
  // Columns of a run: two groups are 48 KiB.
  int64_t RunColumns(int64_t num_rows) const {
    return num_rows > kBlockTokens ? 768 : whole_columns_;
  }

  void RunPair(int64_t g, int groups, int64_t token, const TokenRows& rows,
               bool far) {
    const uint8_t* w =
        static_cast<const uint8_t*>(w_.data) + g * w_.group_bytes;
    const Outputs out = {y_ + token * ld_y_ + g * 16, ld_y_, w_.n - g * 16,
                         far};
    const int64_t most = RunColumns(rows.num_rows);
    for (int64_t k = 0; k < whole_columns_; k += most) {
      const int64_t left = whole_columns_ - k;
      const int64_t columns = left < most ? left : most;
      const TokenRows from = {rows.x + k, rows.ld_x, rows.num_rows};
      const Panel panel = {w + k / kStepColumns * kStepBytes, w_.group_bytes,
                           groups, columns / kStepColumns};
      const ColumnRun run = {k == 0, k + columns == w_.k, sums_};
      MultiplyPanel(tiles_, shape_, from, panel, run, out);
    }
    if (whole_columns_ == w_.k) return;
    for (int i = 0; i < groups; ++i) {
      CopyLastPairs(
          w + i * w_.group_bytes + whole_columns_ / kStepColumns * kStepBytes,
          64, last_w_ + i * kStepBytes);
    }
    MultiplyPanel(tiles_, shape_, {last_x_, kStepColumns, rows.num_rows},
                  {last_w_, kStepBytes, groups, 1},
                  {whole_columns_ == 0, true, sums_}, out);
  }

  // The columns after the last whole step, of all tokens.
  void KeepLastColumns(const TokenRows& rows) {
    for (int64_t t = 0; t < rows.num_rows; ++t) {
      CopyLastPairs(rows.x + t * rows.ld_x + whole_columns_, 4,
                    last_x_ + t * kStepColumns);
    }
  }
  // As many pairs of columns as are left, zeros up to 16 pairs.
  void CopyLastPairs(const void* from, int64_t pair_bytes, void* to) const {
    const int64_t pairs = (w_.k - whole_columns_ + 1) / 2;
    const auto bytes = static_cast<size_t>(pairs * pair_bytes);
    __builtin_memcpy(to, from, bytes);
    __builtin_memset(static_cast<uint8_t*>(to) + bytes, 0,
                     static_cast<size_t>(16 * pair_bytes) - bytes);
  }

  Tiles& tiles_;
  BlockTiles<Tiles> shape_;
  const PackedMatrix& w_;
  const int64_t whole_columns_;
  float* const y_;
  const int64_t ld_y_;
  // Used by rows of several runs.
  alignas(64) float sums_[kMaxTokens / kBlockTokens * kBlockFloats];
  // Used by rows that are no whole number of steps.
  alignas(64) uint16_t last_x_[kMaxTokens * kStepColumns];
  alignas(64) uint8_t last_w_[2 * kStepBytes];
};

}  // namespace
}  // namespace millrace::models
