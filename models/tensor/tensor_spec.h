// What a model says of one of its inputs or outputs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/tensor/dtype.h"

namespace millrace::models {

struct TensorSpec {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> dims;  // -1: differs between requests
  bool rank_known = true;     // else dims are empty and say nothing
  std::string text;           // for people: "FP32 [batch, 3, 224]"
};

}  // namespace millrace::models
