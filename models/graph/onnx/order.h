// An order in which the nodes of a graph can run. ONNX asks files to be in such
// an order; some are not.
#pragma once

#include <vector>

#include "config/base/status.h"

namespace onnx {
class GraphProto;
}

namespace millrace::models::graph {

// Indices of nodes. What the file's own order allows stays in place; names
// that no node of this graph makes are left to the caller. INVALID_ARGUMENT: a
// cycle.
StatusOr<std::vector<int>> RunningOrder(const onnx::GraphProto& graph);

}  // namespace millrace::models::graph
