#include "models/graph/plan/node_bytes.h"

#include "models/graph/passes/fused.h"

namespace millrace::models::graph {
namespace {

int64_t OperandBytes(const Graph& graph, const Node& node, ValueId id,
                     bool has_bf16) {
  const bool on_bytes = node.op == &fused::kByteConv ||
                        node.op == &fused::kByteConvTranspose ||
                        node.op == &fused::kByteLinear;
  const auto& integers = graph.value(id).integers;
  if (on_bytes && integers != nullptr) return integers->values->num_bytes();
  const bool rounds = has_bf16 && node.attrs.Int("bf16", 0) != 0 &&
                      graph.value(id).constant != nullptr;
  return rounds ? ValueBytes(graph, id) / 2 : ValueBytes(graph, id);
}

}  // namespace

int64_t ValueBytes(const Graph& graph, ValueId id) {
  const ValueType& type = *graph.value(id).type;
  return type.shape.num_elements() * DTypeBytes(type.dtype);
}

double NodeBytes(const Graph& graph, const Node& node, bool constants,
                 bool has_bf16) {
  double bytes = 0;
  for (const auto* ids : {&node.inputs, &node.outputs}) {
    for (const ValueId id : *ids) {
      if (id == kNoValue) continue;
      const bool constant = graph.value(id).constant != nullptr;
      if (constant != constants) continue;
      bytes += static_cast<double>(OperandBytes(graph, node, id, has_bf16));
    }
  }
  return bytes;
}

}  // namespace millrace::models::graph
