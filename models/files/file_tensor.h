// A tensor as a model file of any format describes it: a name, a shape, and a
// view of the file's own bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "models/tensor/quant.h"

namespace millrace::models {

struct FileTensor {
  std::string_view name;  // as in the file
  GgmlType type;
  int32_t num_dims;
  std::array<int64_t, 4> dims;  // dims[0] is contiguous; unused ones are 1
  int64_t num_elements;
  int64_t row_bytes;  // of dims[0] values
  std::span<const std::byte> data;

  // Row i of the matrix [num_elements / dims[0]][dims[0]].
  const std::byte* row(int64_t i) const { return data.data() + i * row_bytes; }
};

}  // namespace millrace::models
