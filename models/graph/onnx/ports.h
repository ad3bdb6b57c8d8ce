// Declared types of values as ports of a graph.
#pragma once

#include <optional>

#include "config/base/status.h"
#include "models/graph/ir.h"

namespace onnx {
class ValueInfoProto;
}

namespace millrace::models::graph {

// Everything of the port but its value. Named dimensions become symbols of the
// graph, one for each name; "?" is no name. A map is BYTES as an input (a JSON
// object) and FP32 [n, classes] as an output. UNIMPLEMENTED: of other types.
StatusOr<Port> PortOf(const onnx::ValueInfoProto& info, Graph* graph,
                      bool is_output);

// The rank that is declared, or -1.
int DeclaredRank(const onnx::ValueInfoProto& info);

}  // namespace millrace::models::graph
