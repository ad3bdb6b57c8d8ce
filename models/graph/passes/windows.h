// Sliding windows of convolutions and pools, with everything said: ONNX's
// attributes may leave out strides and the like or ask for padding by name.
#pragma once

#include "models/graph/fused_params.h"
#include "models/graph/ir.h"

namespace millrace::models::graph {

// Of a node whose operands and result are [n, c, spatial…] and whose kernel has
// the sizes of `weight` behind its first two.
NodeWindow WindowOf(const Node& node, const Shape& in, const Shape& out,
                    const Shape& weight);

}  // namespace millrace::models::graph
