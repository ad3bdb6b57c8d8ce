#include "models/graph/plan/expected_weights.h"

#include <map>
#include <set>

#include "models/graph/op.h"

namespace millrace::models::graph {
namespace {

bool IsLayer(const Node& node) {
  return node.op->facts.layer != nullptr && node.inputs.size() > 1 &&
         node.inputs[1] != kNoValue;
}

}  // namespace

int64_t FloatsOfLayers(const Graph& graph) {
  std::map<ValueId, ValueId> transposed;  // from
  for (const Node& node : graph.nodes) {
    if (node.Is("Transpose")) transposed[node.outputs[0]] = node.inputs[0];
  }
  std::set<const Tensor*> seen;
  int64_t floats = 0;
  for (const Node& node : graph.nodes) {
    if (!IsLayer(node)) continue;
    ValueId id = node.inputs[1];
    if (const auto found = transposed.find(id); found != transposed.end()) {
      id = found->second;
    }
    const Tensor* weight = graph.value(id).constant.get();
    if (weight == nullptr || weight->dtype() != DType::kF32 ||
        weight->shape().rank() < 2 || !seen.insert(weight).second) {
      continue;
    }
    floats += weight->num_elements();
  }
  return floats;
}

}  // namespace millrace::models::graph
