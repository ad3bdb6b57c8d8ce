// What the products of language models share: which rows, and what happens to a
// sum.
#pragma once

#include "models/cuda/device_code.cuh"
#include "models/cuda/kernels.h"

namespace millrace::cuda {

__device__ __forceinline__ int64_t RowOf(const int32_t* row_ids, int64_t i) {
  return row_ids == nullptr ? i : row_ids[i];
}

// Output `output` of the row `row`.
__device__ __forceinline__ void StoreProduct(const LinearArgs& args,
                                             int64_t row, int64_t output,
                                             float sum) {
  if (args.bias != nullptr) sum += args.bias[output];
  float* y = args.y + row * args.out_pitch + output;
  *y = args.adds ? fmaf(args.scale, sum, *y) : sum;
}

}  // namespace millrace::cuda
