// Tensors that requests have in another shape than the model: `reshape` of the
// inputs and outputs of a config.pbtxt.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace millrace::config {

// Neither has the dimension of the batch; -1 is a size that varies.
struct TensorReshape {
  std::string name;
  std::vector<int64_t> dims;   // as requests and responses have it
  std::vector<int64_t> shape;  // as the model has it; may be empty
};

struct ReshapeSettings {
  bool has_batch = false;  // a dimension of the batch stands before both
  std::vector<TensorReshape> inputs;
  std::vector<TensorReshape> outputs;
};

}  // namespace millrace::config
