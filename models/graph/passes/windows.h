// Sliding windows of convolutions and pools, with everything said: ONNX's
// attributes may leave out strides and the like or ask for padding by name.
#pragma once

#include <cstdint>
#include <vector>

#include "models/graph/ir.h"

namespace millrace::models::graph {

// One number for each spatial axis; pads: all begins, then all ends.
struct NodeWindow {
  std::vector<int64_t> kernel;
  std::vector<int64_t> strides;
  std::vector<int64_t> dilations;
  std::vector<int64_t> pads;
};

// Of a node whose operands and result are [n, c, spatial…] and whose kernel has
// the sizes of `weight` behind its first two.
NodeWindow WindowOf(const Node& node, const Shape& in, const Shape& out,
                    const Shape& weight);
Attrs WindowAttrs(const NodeWindow& window);
// The other way, from a fused node.
NodeWindow WindowFromAttrs(const Attrs& attrs);

}  // namespace millrace::models::graph
