// Layers are marked by the attribute `bf16`, which passes keep and makers of
// steps read.
#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "models/graph/op.h"
#include "models/graph/passes/passes.h"
#include "models/graph/quantize/insert.h"

namespace millrace::models::graph {
namespace {

// Products of what a softmax made: spelled-out attention will be one node that
// stands in their place, and keeps their attribute.
bool EndsAttention(const Graph& graph, const Node& node,
                   const std::vector<const Node*>& makers) {
  const auto maker = [&](const Node& of, size_t i) -> const Node* {
    if (of.inputs.size() <= i || of.inputs[i] == kNoValue) return nullptr;
    return makers[static_cast<size_t>(of.inputs[i])];
  };
  if (!node.Is("MatMul") || node.inputs.size() < 2 ||
      node.inputs[1] == kNoValue || graph.value(node.inputs[1]).constant) {
    return false;
  }
  const Node* weights = maker(node, 0);
  for (const char* rounding : {"DequantizeLinear", "QuantizeLinear"}) {
    if (weights != nullptr && weights->Is(rounding)) {
      weights = maker(*weights, 0);
    }
  }
  if (weights != nullptr && weights->Is("Where")) weights = maker(*weights, 2);
  return weights != nullptr && weights->Is("Softmax");
}

// Those that int8 knows, and others that have products (attention, recurrent
// layers).
std::vector<QuantizableLayer> LayersOf(const Graph& graph) {
  std::vector<QuantizableLayer> layers = QuantizableLayers(graph);
  std::vector<const Node*> makers(graph.values.size());
  std::map<std::string, int> seen;
  std::vector<bool> listed(graph.nodes.size());
  for (const QuantizableLayer& layer : layers) {
    ++seen[graph.nodes[layer.node].name];
    listed[layer.node] = true;
  }
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    for (const ValueId y : node.outputs) {
      if (y != kNoValue) makers[static_cast<size_t>(y)] = &node;
    }
    if (listed[i] || (!node.op->facts.has_bf16_products &&
                      !EndsAttention(graph, node, makers))) {
      continue;
    }
    const int count = ++seen[node.name];
    layers.push_back(
        {count == 1 ? node.name : node.name + "#" + std::to_string(count), i});
  }
  return layers;
}

}  // namespace

std::vector<std::string> RoundableLayers(const Graph& graph) {
  std::vector<std::string> names;
  for (QuantizableLayer& layer : LayersOf(graph)) {
    names.push_back(std::move(layer.name));
  }
  return names;
}

Status RoundLayers(Graph& graph, const std::vector<std::string>& f32_layers) {
  const std::vector<QuantizableLayer> layers = LayersOf(graph);
  for (const QuantizableLayer& layer : layers) {
    graph.nodes[layer.node].attrs.Set("bf16", int64_t{1});
  }
  for (const std::string& name : f32_layers) {
    const auto found = std::find_if(
        layers.begin(), layers.end(),
        [&](const QuantizableLayer& layer) { return layer.name == name; });
    if (found == layers.end()) {
      return InvalidArgument("the graph has no layer '" + name +
                             "' that could stay in f32");
    }
    graph.nodes[found->node].attrs.Set("bf16", int64_t{0});
  }
  return OkStatus();
}

}  // namespace millrace::models::graph
