// Packs the thin matrices of a LoRA adapter as the kernels of a device read
// them: f16 in groups of rows, all of an adapter in one piece of memory in the
// order in which a step reads it. Adapters are read anew in every step, so
// their bytes are what they cost.
//
// A matrix is multiplied by a power of two that brings its greatest value near
// the upper end of f16, which LoraDelta::scale undoes: values of bf16 and f16
// files stay as they are down to 2^-24 of the greatest, those of f32 files are
// rounded to 11 bits.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "models/llm/lora.h"

namespace millrace::models {

// As read from a file; rank 0: the matrix stays as it is.
struct LoraFloats {
  int32_t rank = 0;
  std::vector<float> a;  // [rank][inputs]
  std::vector<float> b;  // [outputs][rank], scaled
};
using LoraFloatLayers = std::vector<std::array<LoraFloats, kNumLoraTargets>>;

// Loading thread. `name`: what it is served as. RESOURCE_EXHAUSTED where there
// is no memory.
StatusOr<std::shared_ptr<const LoraAdapter>> PackLora(
    const LoraFloatLayers& layers, const LoraPacking& packing,
    std::string name = {});

}  // namespace millrace::models
