// Triton's classification extension: instead of an output's values, the best of
// each row as text "value:index".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "models/tensor/tensor.h"

namespace millrace::server {

struct Classes {
  std::vector<int64_t> shape;      // [rows, count], or [count] of one axis
  std::vector<std::string> texts;  // best first; equal values by index
};

// Of a tensor of numbers whose first axis is the batch where it has two or
// more. `count` >= 1; fewer where a row has fewer values.
Classes Classify(const models::Tensor& tensor, int64_t count);

// INVALID_ARGUMENT: strings have no order to be classified by.
Status CheckClassified(const std::string& output, const models::Tensor& tensor);

// BYTES as they travel: each text behind its length in four bytes.
std::string PackTexts(const std::vector<std::string>& texts);

}  // namespace millrace::server
