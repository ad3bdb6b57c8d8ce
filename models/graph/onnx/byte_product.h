// Products of quantised matrices, for operators that end in floats.
#pragma once

#include "models/graph/onnx/rewrite.h"

namespace millrace::models::graph {

// (x - zero) * scale; without a zero point it is 0.
struct QuantisedMatrix {
  ValueId x = kNoValue;
  ValueId scale = kNoValue;
  ValueId zero = kNoValue;
};

// a·b + bias in FP32, the sums over products in integers. The bias may be left
// out.
ValueId ByteProduct(NodeWriter& node, const QuantisedMatrix& a,
                    const QuantisedMatrix& b, ValueId bias);

}  // namespace millrace::models::graph
