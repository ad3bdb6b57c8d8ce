// What a value holds while a graph is interpreted: a tensor or a sequence.
#pragma once

#include <utility>
#include <vector>

#include "models/tensor/tensor.h"

namespace millrace::models::graph {

struct RuntimeValue {
  RuntimeValue() = default;
  explicit RuntimeValue(Tensor of) : tensor(std::move(of)) {}
  static RuntimeValue Sequence(std::vector<Tensor> items) {
    RuntimeValue value;
    value.is_sequence = true;
    value.sequence = std::move(items);
    return value;
  }
  // Other handles to the same bytes.
  RuntimeValue Share() const {
    RuntimeValue value(tensor.Share());
    value.is_sequence = is_sequence;
    for (const Tensor& item : sequence) value.sequence.push_back(item.Share());
    return value;
  }

  Tensor tensor;
  std::vector<Tensor> sequence;
  bool is_sequence = false;
};

}  // namespace millrace::models::graph
