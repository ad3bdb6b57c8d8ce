// Which part of its operand a Slice takes.
#pragma once

#include <cstdint>

#include "config/base/status.h"
#include "models/graph/op.h"
#include "models/tensor/shape.h"

namespace millrace::models::graph {

// Element i, j, … is operand element first + i * strides[0] + j * strides[1] …
struct SlicePart {
  Shape shape;
  Shape strides;
  int64_t first = 0;
};

// Of a call of Slice whose operands but the first have their bytes.
StatusOr<SlicePart> SlicePartOf(const Call& call);

}  // namespace millrace::models::graph
