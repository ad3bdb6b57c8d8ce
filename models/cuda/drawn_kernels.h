// What the kernel takes that puts drawn tokens into the step behind; see
// kernels.h.
#pragma once

#include <cstdint>

#include "models/cuda/kernels.h"

namespace millrace::cuda {

// A token below 0 becomes the one that sample -1 - token of the step before
// drew. Others stay.
struct TakeDrawnArgs {
  int32_t* tokens = nullptr;       // [rows]
  const int32_t* drawn = nullptr;  // by sample
  int32_t rows = 0;
};
int TakeDrawn(Stream stream, const TakeDrawnArgs& args);

}  // namespace millrace::cuda
