#include "models/llm/cpu/lora_int8.h"

#include <algorithm>

namespace millrace::models {
namespace {

// Outputs of the groups at both ends of a range that are not in it.
constexpr int64_t kSlack = 2 * kLoraTile;

}  // namespace

void LoraInt8Rows::Allocate(int64_t rows, int64_t width) {
  ld_q_ = LoraBlocks(width);
  ld_block_ = ld_q_ / kLoraBlock;
  const auto blocks = static_cast<size_t>(rows * ld_block_);
  q_.resize(static_cast<size_t>(rows * ld_q_));
  d_.resize(blocks);
  s_.resize(blocks);
  sum_.resize(blocks);
  half_.resize(2 * blocks);
}

ActRows LoraInt8Rows::From(int64_t row) const {
  const int64_t at = row * ld_block_;
  ActRows act;
  act.q = q_.data() + row * ld_q_;
  act.d = d_.data() + at;
  act.s = s_.data() + at;
  act.sum = sum_.data() + at;
  act.half = half_.data() + 2 * at;
  act.ld_q = ld_q_;
  act.ld_block = ld_block_;
  return act;
}

void LoraInt8Rows::Keep(const KernelTable& kernels, int64_t row,
                        std::span<const float> x, int64_t first) {
  const auto size = static_cast<int64_t>(x.size());
  const int64_t whole = size / kLoraBlock * kLoraBlock;
  if (whole > 0) kernels.quantize_row(x.data(), whole, At(row, first));
  if (whole == size) return;
  float last[kLoraBlock] = {};
  std::copy_n(x.data() + whole, size - whole, last);
  kernels.quantize_row(last, kLoraBlock, At(row, first + whole));
}

void LoraInt8Scratch::Allocate(int64_t max_rows, int64_t width) {
  rows.Allocate(max_rows * kMaxOutputsARow, kMaxLoraRank);
  y.resize(static_cast<size_t>(max_rows * (width + kMaxOutputsARow * kSlack)));
}

// h becomes a row for each part of b's rows, with its values in that part and
// zeros in the others.
void RoundLoraHidden(const KernelTable& kernels, const LoraDelta& delta,
                     const float* h, int64_t ld_h, int32_t num_rows,
                     LoraInt8Scratch& scratch) {
  const int32_t parts = delta.outputs_a_row;
  const auto rank = static_cast<size_t>(delta.rank);
  for (int32_t i = 0; i < num_rows; ++i) {
    const float* values = h + i * ld_h;
    if (parts == 1) {
      scratch.rows.Keep(kernels, i, {values, rank}, 0);
      continue;
    }
    for (int32_t j = 0; j < parts; ++j) {
      float spread[kLoraBlock] = {};
      std::copy_n(values, rank, spread + j * (kLoraBlock / parts));
      scratch.rows.Keep(kernels, int64_t{i} * parts + j, spread, 0);
    }
  }
}

void AddLoraInt8(const KernelTable& kernels, const LoraDelta& delta,
                 int32_t num_rows, int64_t begin, int64_t end, float* const* y,
                 LoraInt8Scratch& scratch) {
  const int32_t parts = delta.outputs_a_row;
  const PackedMatrix& b = delta.b.matrix;
  const int64_t tile = kLoraTile * parts;
  const int64_t first_tile = begin / tile;
  const int64_t end_tile = (end + tile - 1) / tile;
  const int64_t groups = kLoraTile / delta.b.kernels->row_group;
  const int64_t ld = (end_tile - first_tile) * kLoraTile;
  float* const apart = scratch.y.data();
  delta.b.kernels->linear(b, first_tile * groups, end_tile * groups,
                          scratch.rows.From(0), num_rows * parts,
                          apart - first_tile * kLoraTile, ld);
  for (int32_t i = 0; i < num_rows; ++i) {
    const float* of_tile = apart + i * parts * ld;
    int64_t part = (begin - first_tile * tile) / kLoraTile;
    int64_t skipped = begin % kLoraTile;
    for (int64_t at = begin; at < end;) {
      const int64_t count = std::min(kLoraTile - skipped, end - at);
      kernels.add(y[i] + at - begin, of_tile + part * ld + skipped, count);
      at += count;
      skipped = 0;
      if (++part == parts) {
        part = 0;
        of_tile += kLoraTile;
      }
    }
  }
}

}  // namespace millrace::models
