// Nodes whose result is their operand under another shape, as Reshape.
#pragma once

#include "models/graph/ir.h"

namespace millrace::models::graph {

// Whether the first result is the bytes of the first operand. Values have
// types.
bool IsAlias(const Node& node, const Graph& graph);

}  // namespace millrace::models::graph
