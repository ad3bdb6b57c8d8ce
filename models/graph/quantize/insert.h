// Quantises a graph in FP32 as a table says: it becomes one with QuantizeLinear
// and DequantizeLinear, which passes turn into layers on bytes.
#pragma once

#include <string>
#include <vector>

#include "config/base/status.h"
#include "models/graph/ir.h"
#include "models/graph/quantize/table.h"

namespace millrace::models::graph {

// A convolution or a product with a constant FP32 weight, or an embedding bag
// with such a table.
struct QuantizableLayer {
  std::string name;  // as in a table
  size_t node = 0;   // its place
  bool is_table = false;
};
// Of a graph on which InferAndFold has run at load.
std::vector<QuantizableLayer> QuantizableLayers(const Graph& graph);

// Layers that the table has not stay as they are. INVALID_ARGUMENT names a
// layer that the graph has not, or one in FP16 that is no table.
Status InsertQuantization(Graph& graph, const QuantizationTable& table);

}  // namespace millrace::models::graph
