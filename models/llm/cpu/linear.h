// A matrix as the CPU backend runs it: one packed matrix, or several of
// different formats side by side, with the kernel table that packed each (a
// table may not know a format; the scalar one knows all).
//
// Load thread while packing, then immutable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "models/cpu/llm_kernels.h"
#include "models/llm/backend.h"
#include "models/llm/cpu/line_vector.h"

namespace millrace::models {

// How weights of a served type are kept.
WeightFormat FormatOf(GgmlType type);

// Rows of activations in every form; which ones hold values is the producer's
// business (see CpuLinear's needs).
class ActBuffer {
 public:
  void Allocate(int64_t rows, int64_t k);

  int64_t width() const { return ld_f32_; }
  float* f32(int64_t row) { return f32_.data() + row * ld_f32_; }
  uint16_t* bf16(int64_t row) { return bf16_.data() + row * ld_bf16_; }
  // Planes of one quantised row from value `first`, a multiple of 32, on. There
  // are twice as many as rows, for those rounded twice.
  Q8Row q8(int64_t row, int64_t first = 0) {
    const int64_t at = row * ld_block_ + first / 32;
    return {q_.data() + row * ld_q_ + first, d_.data() + at, s_.data() + at,
            sum_.data() + at, half_.data() + 2 * at};
  }
  ActRows F32Rows(int64_t first_row) const;
  ActRows Bf16Rows(int64_t first_row) const;
  ActRows Q8Rows(int64_t first_row) const;

 private:
  int64_t ld_f32_ = 0;
  int64_t ld_bf16_ = 0;
  int64_t ld_q_ = 0;
  int64_t ld_block_ = 0;
  LineVector<float> f32_;
  LineVector<uint16_t> bf16_;
  LineVector<int8_t> q_;
  LineVector<float> d_, s_;
  LineVector<int32_t> sum_;
  LineVector<int16_t> half_;
};

class CpuLinear final : public Linear {
 public:
  // Output o of the matrix is row o of these sources; a null row is zeros
  // (padding) and stands only at the end of 16 outputs. With `f32` weights are
  // dequantised to f32.
  CpuLinear(int64_t inputs, int64_t outputs, const KernelTable& kernels,
            bool f32, Rounding rounding);
  void AddRows(const WeightRows& rows);
  void AddPadding(int64_t num_rows);

  // ---- packing ----
  int64_t packed_bytes() const;  // a multiple of 64
  void Place(std::byte* memory);
  // One line of how it is packed: sizes, formats, packings.
  std::string Layout() const;
  int64_t num_groups() const;
  void PackGroup(int64_t group);
  std::span<const WeightRows> sources() const { return sources_; }

  // ---- use ----
  bool needs_f32() const { return needs_f32_; }
  bool needs_q8() const { return needs_q8_; }
  bool needs_bf16() const { return needs_bf16_; }
  // Whether rows of prompts go through RunPrompt, in bf16. Where it is wanted,
  // a matrix does so if its table has kernels for all its parts.
  bool prompts_in_bf16() const { return prompts_in_bf16_; }
  void ChoosePromptWay(bool wanted);
  // Not beside float parts, which read the same rows.
  bool rounds_twice() const {
    return needs_q8_ && !needs_f32_ && !needs_bf16_ &&
           rounding_ == Rounding::kTwice;
  }
  // Bytes of weights that are walked for all rows before the next ones are read
  // from memory; any number gives the same bits.
  int64_t pass_bytes() const { return pass_bytes_; }
  void set_pass_bytes(int64_t bytes) { pass_bytes_ = bytes; }
  // y[row][output - begin] for outputs [begin, end), whole multiples of 16 but
  // for the matrix's own end. Rows are those of act's form that the matrix
  // reads.
  void Run(int64_t begin, int64_t end, const ActBuffer& act, int64_t first_row,
           int32_t num_rows, float* y, int64_t ld_y) const;
  // The same for rows of prompts in bf16, in a table that has kernels of their
  // own for them. All rows in one call: quantised weights become bf16 once for
  // all of them. `scratch`: prompt_scratch_bytes of at least so many rows,
  // aligned to 64 bytes.
  void RunPrompt(int64_t begin, int64_t end, const ActBuffer& act,
                 int64_t first_row, int32_t num_rows, float* y, int64_t ld_y,
                 std::byte* scratch) const;
  int64_t prompt_scratch_bytes(int32_t num_rows) const;
  void UnpackRow(int64_t row, float* out) const;

  std::vector<float> bias;  // empty, or one for each output

 private:
  struct Part {
    PackedMatrix matrix;
    const KernelTable* kernels;
    GgmlType source_type;
    GgmlType packed_type;  // another one when quantised while packed
    int64_t first_output;
    std::vector<const std::byte*> rows;  // null: padding
  };
  Part& PartFor(GgmlType source_type, GgmlType packed_type);
  // The outputs [begin, end) of the whole matrix that are in a part, as a
  // matrix of their own; n is 0 where there are none. `first`: of the first.
  static PackedMatrix ViewOf(const Part& part, int64_t begin, int64_t end,
                             int64_t* first);
  bool ReadsBf16(const Part& part) const;

  const KernelTable& kernels_;
  const bool f32_;
  const Rounding rounding_;
  bool needs_q8_ = false;
  bool needs_bf16_ = false;
  bool needs_f32_ = false;
  bool prompts_in_bf16_ = false;
  int64_t num_rows_ = 0;
  int64_t pass_bytes_ = 384 << 10;  // until it has been measured
  std::vector<Part> parts_;
  std::vector<WeightRows> sources_;
};

}  // namespace millrace::models
