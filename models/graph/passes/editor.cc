#include "models/graph/passes/editor.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "models/graph/op.h"
#include "models/graph/passes/fused.h"

namespace millrace::models::graph {

namespace {

// What people know a fused node by.
bool IsLayer(const OpDef& op) {
  constexpr const OpDef* kLayers[] = {
      &fused::kConv,     &fused::kVolumeConv, &fused::kConvTranspose,
      &fused::kLinear,   &fused::kMatMul,     &fused::kAttention,
      &fused::kByteConv, &fused::kByteLinear, &fused::kByteConvTranspose,
      &fused::kPool,     &fused::kBytePool,   &fused::kGroupNorm,
      &fused::kResize};
  return std::find(std::begin(kLayers), std::end(kLayers), &op) !=
         std::end(kLayers);
}

}  // namespace

Editor::Editor(Graph& graph)
    : graph_(graph), maker_(graph.values.size(), -1), uses_(graph.CountUses()) {
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const ValueId id : graph.nodes[i].outputs) {
      if (id != kNoValue) maker_[Index(id)] = static_cast<int32_t>(i);
    }
  }
}

Node* Editor::Maker(ValueId id) {
  if (id == kNoValue || maker_[Index(id)] < 0) return nullptr;
  return &graph_.nodes[static_cast<size_t>(maker_[Index(id)])];
}

Node* Editor::SoleMaker(ValueId id, std::string_view op) {
  Node* maker = Maker(id);
  return maker != nullptr && maker->Is(op) && NumReaders(id) == 1 ? maker
                                                                  : nullptr;
}

const Tensor* Editor::Constant(ValueId id) const {
  return id == kNoValue ? nullptr : graph_.value(id).constant.get();
}

bool Editor::IsFilledWith(ValueId id, double number, double tolerance) const {
  const Tensor* tensor = Constant(id);
  if (tensor == nullptr || tensor->dtype() != DType::kF32 ||
      tensor->num_elements() == 0) {
    return false;
  }
  const float* values = tensor->data<float>();
  return std::all_of(values, values + tensor->num_elements(), [&](float x) {
    return std::abs(x - number) <= tolerance;
  });
}

void Editor::Replace(ValueId from, ValueId to) {
  for (Node& node : graph_.nodes) {
    for (ValueId& id : node.inputs) {
      if (id != from) continue;
      id = to;
      --uses_[Index(from)];
      ++uses_[Index(to)];
    }
  }
  for (Port& port : graph_.outputs) {
    if (port.value != from) continue;
    port.value = to;
    --uses_[Index(from)];
    ++uses_[Index(to)];
  }
}

const Node* Editor::LayerBefore(const Node& node,
                                const std::vector<ValueId>& inputs) {
  const Node* layer = nullptr;
  for (const ValueId id : node.inputs) {
    const Node* maker = Maker(id);
    while (maker != nullptr &&
           (maker->Is("QuantizeLinear") || maker->Is("DequantizeLinear"))) {
      maker = Maker(maker->inputs[0]);
    }
    if (maker == nullptr || !IsLayer(*maker->op)) continue;
    const bool same_weight = maker->inputs.size() > 1 && inputs.size() > 1 &&
                             maker->inputs[1] == inputs[1];
    if (layer == nullptr || same_weight) layer = maker;
  }
  return layer;
}

void Editor::Rewrite(Node& node, const OpDef& op, std::vector<ValueId> inputs,
                     Attrs attrs) {
  if (IsLayer(op) && !IsLayer(*node.op)) {
    if (const Node* layer = LayerBefore(node, inputs)) node.name = layer->name;
  }
  for (const ValueId id : inputs) {
    if (id != kNoValue) ++uses_[Index(id)];
  }
  for (const ValueId id : node.inputs) {
    if (id != kNoValue) --uses_[Index(id)];
  }
  node.op = &op;
  node.inputs = std::move(inputs);
  node.attrs = std::move(attrs);
}

ValueId Editor::AddConstant(std::string_view name, Tensor tensor) {
  const ValueId id = graph_.AddConstant(name, std::move(tensor));
  maker_.push_back(-1);
  uses_.push_back(0);
  return id;
}

ValueId Editor::InsertBefore(const Node& node, const OpDef& op,
                             std::vector<ValueId> inputs, Attrs attrs,
                             ValueType type) {
  const ValueId id = graph_.AddValue(node.name);
  graph_.value(id).type = std::move(type);
  maker_.push_back(-1);
  uses_.push_back(0);
  for (const ValueId input : inputs) {
    if (input != kNoValue) ++uses_[Index(input)];
  }
  const auto place = static_cast<size_t>(&node - graph_.nodes.data());
  inserted_[place].push_back({.op = &op,
                              .name = node.name,
                              .inputs = std::move(inputs),
                              .outputs = {id},
                              .attrs = std::move(attrs),
                              .bodies = {}});
  return id;
}

void Editor::Finish() {
  std::vector<Node> all;
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    if (const auto found = inserted_.find(i); found != inserted_.end()) {
      for (Node& node : found->second) all.push_back(std::move(node));
    }
    all.push_back(std::move(graph_.nodes[i]));
  }
  inserted_.clear();
  std::vector<bool> read(graph_.values.size());
  for (const Port& port : graph_.outputs) read[Index(port.value)] = true;
  graph_.nodes.clear();
  for (auto node = all.rbegin(); node != all.rend(); ++node) {
    const bool wanted = std::any_of(
        node->outputs.begin(), node->outputs.end(),
        [&](ValueId id) { return id != kNoValue && read[Index(id)]; });
    if (!wanted) continue;
    for (const ValueId id : node->inputs) {
      if (id != kNoValue) read[Index(id)] = true;
    }
    graph_.nodes.push_back(std::move(*node));
  }
  std::reverse(graph_.nodes.begin(), graph_.nodes.end());
}

}  // namespace millrace::models::graph
