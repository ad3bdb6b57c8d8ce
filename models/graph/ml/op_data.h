// What an importer has made of a node's attributes (trees, tables) is a
// constant operand of the operator that reads it: the bytes of the tensor are
// the object itself, which the tensor keeps alive. Operators with such operands
// are named "ml.…", and no file may name them.
#pragma once

#include <memory>
#include <utility>

#include "models/graph/op.h"

namespace millrace::models::graph {

template <typename T>
Tensor DataTensor(std::shared_ptr<const T> data) {
  const auto* bytes = reinterpret_cast<const std::byte*>(data.get());
  return Tensor::Borrow(DType::kU8, {static_cast<int64_t>(sizeof(T))}, bytes,
                        std::move(data));
}

// INVALID_ARGUMENT: the operand is not there.
template <typename T>
StatusOr<const T*> DataOf(const Call& call, size_t i = 1) {
  const Arg& arg = call.arg(i);
  if (!arg.given || arg.bytes == nullptr || arg.dtype != DType::kU8 ||
      arg.num_elements() != static_cast<int64_t>(sizeof(T))) {
    return InvalidArgument("its data are missing");
  }
  return reinterpret_cast<const T*>(arg.bytes);
}

}  // namespace millrace::models::graph
