// What the kernels of LoRA adapters take; see kernels.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/cuda/kernels.h"

namespace millrace::cuda {

// What a LoRA adapter adds to one matrix of the model: y += scale * B · (A · x)
// (Hu et al. 2021). Values are f16 or f32.
struct LoraFactors {
  const std::byte* a = nullptr;  // [rank, to a multiple of 4][inputs]
  const std::byte* b = nullptr;  // [rank][outputs, to a multiple of 8]
  int32_t rank = 0;              // 0: the matrix stays as it is
  float scale = 1;               // a power of two
};
// Rows of one adapter: `count` of them from `first` on in the order by adapter.
// Without rows it is nothing, so that a list may be padded.
struct LoraTile {
  const LoraFactors* adapter;  // of all matrices of the model
  int32_t first;
  int32_t count;  // kLoraTileRows at most
};
inline constexpr int32_t kLoraTileRows = 8;
inline constexpr int32_t kMostLoraRank = 256;
inline constexpr int32_t kMostLoraTargets = 3;
// Most ranks of a step are rounded up to a multiple of this.
inline constexpr int32_t kLoraRanks = 16;
// A · x is summed in splits of so many inputs, which are added in order.
inline constexpr int32_t kLoraSplitInputs = 1024;
constexpr int32_t LoraSplits(int64_t inputs) {
  return static_cast<int32_t>((inputs + kLoraSplitInputs - 1) /
                              kLoraSplitInputs);
}

// For rows that have an adapter, of up to three matrices that read the same x:
// y += scale * (what the adapter adds).
struct LoraArgs {
  const LoraTile* tiles = nullptr;
  int32_t num_tiles = 0;
  const int32_t* order = nullptr;  // rows of x and y, by adapter
  int32_t first_matrix = 0;        // among the factors of an adapter
  int32_t num_targets = 0;         // matrices from that one on
  struct Target {
    int32_t first_output = 0;  // in a row of y
    int32_t outputs = 0;
  } targets[kMostLoraTargets] = {};
  bool f32 = false;       // of all factors
  int32_t most_rank = 0;  // of the adapters of a step, a multiple of kLoraRanks
  int32_t inputs = 0;     // a multiple of 8, zeros behind a row's values
  const float* x = nullptr;
  int64_t pitch = 0;
  // Whether blocks share the splits of a row, for steps of few rows. It changes
  // no bits.
  bool shares_splits = false;
  // A · x: [place in the order][target][splits, if they are shared][most_rank].
  float* hidden = nullptr;
  float scale = 1;
  float* y = nullptr;
  int64_t out_pitch = 0;
};
// Returns as the functions of kernels.h do.
int AddLora(Stream stream, const LoraArgs& args);

}  // namespace millrace::cuda
