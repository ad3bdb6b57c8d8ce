#include "models/graph/passes/alias.h"

#include "models/graph/op.h"

namespace millrace::models::graph {

bool IsAlias(const Node& node, const Graph& graph) {
  if (node.op->facts.reshapes) return true;
  return node.Is("Cast") && graph.value(node.inputs[0]).type->dtype ==
                                graph.value(node.outputs[0]).type->dtype;
}

}  // namespace millrace::models::graph
