// A tile of 64 x 64 outputs of a product, by a block of 256 threads of 4 x 4
// each, 16 inputs at a time through shared memory. An output's products are
// added in f32 in the order of the inputs, by one thread: its bits depend on
// its own factors alone.
#pragma once

#include "models/cuda/graph_functions.cuh"

namespace millrace::cuda {

inline constexpr int kTile = 64;
inline constexpr int kTileInputs = 16;
inline constexpr int kTilePitch = kTile + 1;
inline constexpr size_t kTileBytes =
    2 * kTileInputs * kTilePitch * sizeof(float);

// a(row, input), b(input, output) and store(row, output, sum) are called for
// places within m, n and k alone.
template <class A, class B, class Store>
__device__ void MultiplyTile(int64_t m, int64_t n, int64_t k, int64_t row0,
                             int64_t output0, const A& a, const B& b,
                             const Store& store) {
  float* rows = SharedMemory<float>();  // [kTileInputs][kTilePitch]
  float* outputs = rows + kTileInputs * kTilePitch;
  const int thread = static_cast<int>(threadIdx.x);
  const int my_row = thread / 16;
  const int my_output = thread % 16;
  float sums[4][4] = {};
  for (int64_t from = 0; from < k; from += kTileInputs) {
    for (int i = thread; i < kTile * kTileInputs; i += kGraphThreads) {
      const int input = i % kTileInputs;
      const int row = i / kTileInputs;
      const bool there = row0 + row < m && from + input < k;
      rows[input * kTilePitch + row] =
          there ? a(row0 + row, from + input) : 0.0f;
    }
    for (int i = thread; i < kTile * kTileInputs; i += kGraphThreads) {
      const int output = i % kTile;
      const int input = i / kTile;
      const bool there = output0 + output < n && from + input < k;
      outputs[input * kTilePitch + output] =
          there ? b(from + input, output0 + output) : 0.0f;
    }
    __syncthreads();
    // Not beyond k: adding 0 * 0 would turn a -0 to 0, and rows must not
    // depend on how far a tile reaches.
    const int some = static_cast<int>(Min64(kTileInputs, k - from));
    for (int input = 0; input < some; ++input) {
      float x[4];
      float w[4];
      for (int i = 0; i < 4; ++i) {
        x[i] = rows[input * kTilePitch + my_row + 16 * i];
        w[i] = outputs[input * kTilePitch + my_output + 16 * i];
      }
      for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < 4; ++j) {
          sums[i][j] = fmaf(x[i], w[j], sums[i][j]);
        }
      }
    }
    __syncthreads();
  }
  for (int i = 0; i < 4; ++i) {
    const int64_t row = row0 + my_row + 16 * i;
    for (int j = 0; j < 4; ++j) {
      const int64_t output = output0 + my_output + 16 * j;
      if (row < m && output < n) store(row, output, sums[i][j]);
    }
  }
}

// Blocks of a grid: tiles along x, products or groups along y, which a kernel
// walks in steps of gridDim.y.
inline dim3 ByTile(int64_t m, int64_t n, int64_t products) {
  const int64_t most = 65535;
  return dim3(
      static_cast<unsigned>(int64_t{CeilDiv(m, kTile)} * CeilDiv(n, kTile)),
      static_cast<unsigned>(products < most ? products : most));
}

}  // namespace millrace::cuda
