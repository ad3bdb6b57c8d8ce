// What the kernels around products of a library take; see kernels.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/cuda/kernels.h"

namespace millrace::cuda {

// What MultiplyOnTensors does once its sums are known, for those of its rows
// whose sums a library has made: y = s * sum (+ bias), or with `adds` y +=
// scale
// * that; s is the scale behind a row of f16 or bf16.
struct FinishProductArgs {
  LinearArgs product;           // without tiles
  const float* sums = nullptr;  // of the rows [first, first + count) of x
  int64_t pitch = 0;            // a multiple of 4
  int32_t first = 0;
  int32_t count = 0;
};

// Whether the bits of each row of x are those of `expected`.
struct CompareRowsArgs {
  const float* x = nullptr;
  int64_t pitch = 0;
  const float* expected = nullptr;  // [width]
  int32_t width = 0;
  int32_t rows = 0;
  int32_t* differs = nullptr;  // [rows] 0 or 1
};

int FinishProduct(Stream stream, const FinishProductArgs& args);
int CompareRows(Stream stream, const CompareRowsArgs& args);

}  // namespace millrace::cuda
