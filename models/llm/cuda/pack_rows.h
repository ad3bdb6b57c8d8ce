// Rows of weights from a file's format to that of the CUDA kernels
// (models/cuda/kernels.h), which holds the same numbers in planes, so that
// loads of a warp are aligned and side by side.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/cuda/kernels.h"
#include "models/tensor/quant.h"

namespace millrace::models {

// Types that no kernel reads as they are (IQ4_NL, IQ4_XS, MXFP4, Q2_K, Q3_K)
// are kept as f16.
cuda::WeightFormat CudaFormatOf(GgmlType type);

// Values of a row with the zeros behind them.
int64_t CudaInputs(int64_t k);
int64_t CudaRowBytes(cuda::WeightFormat format, int64_t k);

// One row of k values into CudaRowBytes, of zeros.
void PackCudaRow(GgmlType type, const std::byte* row, int64_t k,
                 std::byte* out);

}  // namespace millrace::models
