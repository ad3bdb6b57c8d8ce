// Products with the matrices of LoRA adapters in int8 (lora_packing.h): rows of
// inputs, and of A x, are rounded to int8 as those of quantised models are.
// Sums in a block of 32 values are exact integers, so bits depend neither on
// the kernel table nor on the rows beside one.
#pragma once

#include <cstdint>
#include <span>

#include "models/cpu/llm_kernels.h"
#include "models/llm/cpu/line_vector.h"
#include "models/llm/lora.h"

namespace millrace::models {

// Rows of int8 with what the kernels know of each block; planes as in ActRows.
class LoraInt8Rows {
 public:
  // `width`: values of a row, whole blocks.
  void Allocate(int64_t rows, int64_t width);
  bool empty() const { return q_.empty(); }
  // From value `first`, a multiple of 32, on.
  Q8Row At(int64_t row, int64_t first = 0) {
    const int64_t at = row * ld_block_ + first / 32;
    return {q_.data() + row * ld_q_ + first, d_.data() + at, s_.data() + at,
            sum_.data() + at, half_.data() + 2 * at};
  }
  ActRows From(int64_t row) const;
  // Rounds x as values [first, first + x.size()) of a row, and zeros up to the
  // end of the last block.
  void Keep(const KernelTable& kernels, int64_t row, std::span<const float> x,
            int64_t first);

 private:
  int64_t ld_q_ = 0;
  int64_t ld_block_ = 0;
  LineVector<int8_t> q_;
  LineVector<float> d_, s_;
  LineVector<int32_t> sum_;
  LineVector<int16_t> half_;
};

// What a worker needs beside.
struct LoraInt8Scratch {
  LoraInt8Rows rows;    // of A x, for rows of B
  LineVector<float> y;  // of rows of B

  // For up to max_rows rows and `width` outputs.
  void Allocate(int64_t max_rows, int64_t width);
};

// Rounds h = A x, [num_rows][ld_h], for the rows of delta.b.
void RoundLoraHidden(const KernelTable& kernels, const LoraDelta& delta,
                     const float* h, int64_t ld_h, int32_t num_rows,
                     LoraInt8Scratch& scratch);
// y[i][o - begin] += (B h)[o] for outputs [begin, end) of delta.b and the
// num_rows rows h that were rounded last.
void AddLoraInt8(const KernelTable& kernels, const LoraDelta& delta,
                 int32_t num_rows, int64_t begin, int64_t end, float* const* y,
                 LoraInt8Scratch& scratch);

}  // namespace millrace::models
