// How many bytes a step reads and writes.
#pragma once

#include <cstdint>

#include "models/graph/ir.h"

namespace millrace::models::graph {

// Of a value with a type, as it stands in the graph.
int64_t ValueBytes(const Graph& graph, ValueId id);

// Of a node's operands and results together: the constants among them, or the
// others. Layers on bytes read what their weight was made of, those of bf16
// half of it where the machine has such products.
double NodeBytes(const Graph& graph, const Node& node, bool constants,
                 bool has_bf16);

}  // namespace millrace::models::graph
