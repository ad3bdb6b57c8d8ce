// A matrix as the CUDA backend runs it: rows of one or several types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "models/cuda/kernels.h"
#include "models/cuda/lora_kernels.h"
#include "models/llm/backend.h"
#include "models/llm/cuda/cuda_backend.h"

namespace millrace::models {

class CudaBackend::CudaLinear final : public Linear {
 public:
  // Rows of one type.
  struct Part {
    WeightRows source;
    GgmlType type;  // another one when quantised while packed
    cuda::WeightFormat format;
    int64_t first_output;
    int64_t row_bytes;
    int64_t at = 0;  // of the first row, among all weights
    // What multiplies rows of prompts; null: a kernel.
    mutable const BlasProduct* blas = nullptr;

    // Packs one row to its place; `weights` are zeros there.
    void Pack(int64_t row, std::byte* weights) const;
  };

  CudaLinear(int64_t inputs, int64_t outputs, Rounding wanted)
      : Linear(inputs, outputs), rounding(wanted) {}

  const Rounding rounding;
  // Which rows phases multiply by it.
  enum class Rows { kNone, kAll, kKept };
  mutable Rows rows = Rows::kNone;
  bool exact = false;  // in f32 whatever compute_dtype says
  // What adapters add to its product, without which step; no targets: nothing.
  mutable cuda::LoraArgs lora;

  std::vector<Part> parts;
  int64_t bias = -1;  // among the constants; below 0: none
};

}  // namespace millrace::models
