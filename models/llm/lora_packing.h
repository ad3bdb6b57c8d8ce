// Packs the thin matrices of a LoRA adapter as the kernels of a device read
// them, all of an adapter in one piece of memory in the order in which a step
// reads it. Adapters are read anew in every step, so their bytes are what they
// cost.
//
// Floats lie in groups of rows. For f16 a matrix is multiplied by a power of
// two that brings its greatest value near the upper end of f16, which
// LoraDelta::scale undoes: values of bf16 and f16 files stay as they are down
// to 2^-24 of the greatest, those of f32 files are rounded to 11 bits. bf16
// rounds to 8 bits.
//
// int8 is Q8_0: 32 values of a row share a scale, after the same power of two.
// A has whole blocks of columns, zeros at the end. A row of B is often shorter
// than a block, so the ranks of `outputs_a_row` outputs share one, each in
// kLoraBlock / outputs_a_row columns: row 16 t + r has the outputs
//
//   16 t * outputs_a_row + 16 j + r,    j = 0 … outputs_a_row - 1
//
// and is multiplied by rows of A x that have its values in part j and zeros in
// the others. The kernels of every table know 16 rows, so bits are the same.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
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

// What brings the greatest of `values` to 2^14 or just below, as a power of
// two: f16 ends at 2^16.
inline int LoraExponent(std::span<const float> values) {
  float most = 0;
  for (const float x : values) most = std::max(most, std::abs(x));
  if (most == 0) return 0;
  int exponent = 0;
  std::frexp(most, &exponent);  // most = m * 2^exponent, m in [0.5, 1)
  // Two such exponents undone must be a normal f32.
  return std::min(14 - exponent, 60);
}

// Loading thread. `name`: what it is served as. RESOURCE_EXHAUSTED where there
// is no memory.
StatusOr<std::shared_ptr<const LoraAdapter>> PackLora(
    const LoraFloatLayers& layers, const LoraPacking& packing,
    std::string name = {});

}  // namespace millrace::models
