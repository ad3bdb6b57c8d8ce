#include "models/graph/row_tables.h"

#include <vector>

#include "models/memory/mapped_file.h"
#include "models/tensor/strings.h"

namespace millrace::models::graph {

bool ReadsRows(const Graph& graph, const Node& node) {
  if (node.Is("EmbeddingBag")) return true;
  if (!node.Is("Gather")) return false;
  const Tensor* table = graph.value(node.inputs[0]).constant.get();
  const int64_t axis = node.attrs.Int("axis", 0);
  return axis == 0 || (table != nullptr && axis == -table->shape().rank());
}

void ReadRowsAtRandom(const Graph& graph) {
  std::vector<int32_t> others = graph.CountUses();
  for (const Node& node : graph.nodes) {
    if (ReadsRows(graph, node)) --others[static_cast<size_t>(node.inputs[0])];
  }
  for (size_t i = 0; i < graph.values.size(); ++i) {
    const Tensor* table = graph.values[i].constant.get();
    if (table == nullptr || others[i] > 0 || table->is_late() ||
        table->dtype() == kString || table->num_bytes() < kLargeTableBytes) {
      continue;
    }
    WillReadAtRandom({table->bytes(), static_cast<size_t>(table->num_bytes())});
  }
}

}  // namespace millrace::models::graph
