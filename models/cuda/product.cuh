// What the products of language models share: which rows, and what happens to a
// sum.
#pragma once

#include "models/cuda/device_code.cuh"
#include "models/cuda/kernels.h"

namespace millrace::cuda {

__device__ __forceinline__ int64_t RowOf(const int32_t* row_ids, int64_t i) {
  return row_ids == nullptr ? i : row_ids[i];
}

// What a block of kRows rows at most computes: rows [first, end) of `ids`, or
// of all rows; x_of is the row of x that a row of y reads.
struct RowTile {
  const std::byte* weights;
  const int32_t* ids;
  int64_t first;
  int64_t end;
  int32_t uses_of_row;
  const int32_t* x_ids;  // of rows of x that have uses; null: 0, 1, ...

  __device__ __forceinline__ int64_t row(int i) const {
    return RowOf(ids, Min64(first + i, end - 1));
  }
  __device__ __forceinline__ int64_t x_of(int64_t row) const {
    return RowOf(x_ids, uses_of_row == 1
                            ? row
                            : static_cast<int32_t>(row) / uses_of_row);
  }
};
template <int kRows>
__device__ __forceinline__ RowTile TileOf(const LinearArgs& args,
                                          unsigned block) {
  if (args.tiles == nullptr) {
    return {args.weights.data,
            args.row_ids,
            int64_t{block} * kRows,
            args.rows,
            1,
            nullptr};
  }
  const ExpertTile tile = args.tiles[block];
  return {args.matrices[tile.expert],       args.order,       tile.first,
          int64_t{tile.first} + tile.count, args.uses_of_row, args.row_ids};
}
inline unsigned BlocksOfRows(const LinearArgs& args, int rows) {
  return args.tiles == nullptr ? CeilDiv(args.rows, rows)
                               : static_cast<unsigned>(args.num_tiles);
}

// Output `output` of the row `row`.
__device__ __forceinline__ void StoreProduct(const LinearArgs& args,
                                             int64_t row, int64_t output,
                                             float sum) {
  if (args.bias != nullptr) sum += args.bias[output];
  float* y = args.y + row * args.out_pitch + output;
  *y = args.adds ? fmaf(args.scale, sum, *y) : sum;
}

// Adds up what the lanes of a warp have of the outputs from `first` on, and
// stores those that the matrix and the tile have.
template <int kOutputs, int kRows>
__device__ __forceinline__ void StoreSums(
    const LinearArgs& args, const RowTile& tile, int64_t first, int lane,
    const float (&sums)[kOutputs][kRows]) {
  MILLRACE_UNROLL
  for (int o = 0; o < kOutputs; ++o) {
    MILLRACE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const float sum = WarpSum(sums[o][r]);
      if (lane == 0 && first + o < args.weights.outputs &&
          tile.first + r < tile.end) {
        StoreProduct(args, tile.row(r), first + o, sum);
      }
    }
  }
}

}  // namespace millrace::cuda
