// Tables of embedding bags in fewer bytes: rows in bytes with a scale and a
// bias each, as fbgemm has them, or in FP16.
#pragma once

#include "models/graph/ir.h"

namespace millrace::models::graph {

// Whether the node pools rows of a constant FP32 table.
bool HasFloatTable(const Graph& graph, const Node& node);

// [rows, size + 8] UINT8. A row with a value that is not finite becomes NaN.
Tensor RowsInBytes(const Tensor& table);
Tensor RowsInHalves(const Tensor& table);

// Makes the node read `table`, one of both above.
void UseTable(Graph& graph, Node& node, Tensor table);

}  // namespace millrace::models::graph
