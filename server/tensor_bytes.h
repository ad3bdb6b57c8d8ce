// Tensors of the Open Inference Protocol as both wires carry them: a name, a
// datatype ("FP32"), a shape, and bytes that are little-endian and row major.
// Pure functions; errors name the tensor.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "config/base/status.h"
#include "models/tensor/tensor.h"

namespace millrace::server {

struct TensorHead {
  std::string name;
  models::DType dtype = models::DType::kF32;
  models::Shape shape;
};

StatusOr<TensorHead> ReadTensorHead(std::string_view name,
                                    std::string_view datatype,
                                    std::span<const int64_t> dims);

// As many bytes as the head says; those of a BOOL are 0 or 1. Each element of
// BYTES stands behind its length, four bytes.
StatusOr<models::Tensor> TensorFromBytes(const TensorHead& head,
                                         std::string_view bytes);

// INVALID_ARGUMENT about the input of that name: "input 'x' …".
Status BadInput(std::string_view name, std::string_view what);

}  // namespace millrace::server
