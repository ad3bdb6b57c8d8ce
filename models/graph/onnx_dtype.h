// Element types by the number that ONNX gives them, as they stand in attributes
// of operators: `to` of Cast, `dtype` of EyeLike, `output_dtype` and so on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "models/tensor/dtype.h"

namespace millrace::models::graph {

std::optional<DType> DTypeFromOnnx(int64_t number);
int64_t OnnxNumber(DType dtype);
// "FLOAT16", also of types that we have not; for messages.
std::string OnnxTypeName(int64_t number);

}  // namespace millrace::models::graph
