#include "models/graph/ir.h"

#include "models/graph/op.h"

namespace millrace::models::graph {
namespace {

// A reader's picture of one node: "y, z = Split(x, _) {axis=1}".
std::string NodeText(const Graph& graph, const Node& node) {
  const auto list = [&](const std::vector<ValueId>& ids) {
    std::string text;
    for (const ValueId id : ids) {
      if (!text.empty()) text += ", ";
      text += id == kNoValue ? "_" : graph.value(id).name;
    }
    return text;
  };
  return list(node.outputs) + " = " + std::string(node.op->name) + "(" +
         list(node.inputs) + ")";
}

Status Broken(const Node& node, std::string_view what) {
  return Internal("graph node '" + node.name + "' " + std::string(what));
}

}  // namespace

bool Node::Is(std::string_view op_name) const { return op->name == op_name; }

ValueId Graph::AddValue(std::string_view value_name) {
  // The name may be that of one of the values, which are about to move.
  Value added;
  added.name = value_name;
  values.push_back(std::move(added));
  return static_cast<ValueId>(values.size() - 1);
}

ValueId Graph::AddConstant(std::string_view value_name, Tensor tensor) {
  const ValueId id = AddValue(value_name);
  value(id).type = ValueType{tensor.dtype(), tensor.shape()};
  value(id).constant = std::make_shared<const Tensor>(std::move(tensor));
  return id;
}

ValueId Graph::AddInput(std::string_view input_name, DType dtype,
                        std::vector<PortDim> dims) {
  const ValueId id = AddValue(input_name);
  inputs.push_back({.name = std::string(input_name),
                    .value = id,
                    .dtype = dtype,
                    .dims = std::move(dims)});
  return id;
}

void Graph::AddOutput(std::string_view output_name, ValueId id) {
  outputs.push_back({.name = std::string(output_name),
                     .value = id,
                     .dims = {},
                     .rank_known = false});
}

ValueId Graph::AddNode(std::string_view node_name, const OpDef& op,
                       std::vector<ValueId> node_inputs, Attrs attrs) {
  const ValueId out = AddValue(node_name);
  nodes.push_back({.op = &op,
                   .name = std::string(node_name),
                   .inputs = std::move(node_inputs),
                   .outputs = {out},
                   .attrs = std::move(attrs),
                   .bodies = {}});
  return out;
}

int32_t Graph::AddSymbol(std::string_view symbol_name) {
  symbols.emplace_back().name = symbol_name;
  return static_cast<int32_t>(symbols.size() - 1);
}

Status Graph::Validate() const {
  const auto count = static_cast<ValueId>(values.size());
  std::vector<bool> made(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    made[i] = values[i].constant != nullptr;
  }
  const auto in_range = [&](ValueId id) { return id >= 0 && id < count; };
  for (const Port& port : inputs) {
    if (!in_range(port.value) || made[static_cast<size_t>(port.value)]) {
      return Internal("graph input '" + port.name + "' is made twice");
    }
    made[static_cast<size_t>(port.value)] = true;
  }
  for (const Node& node : nodes) {
    if (node.op == nullptr) return Broken(node, "has no operator");
    for (const ValueId id : node.inputs) {
      if (id == kNoValue) continue;
      if (!in_range(id) || !made[static_cast<size_t>(id)]) {
        return Broken(node, "reads a value that is not made yet");
      }
    }
    for (const ValueId id : node.outputs) {
      if (id == kNoValue) continue;
      if (!in_range(id) || made[static_cast<size_t>(id)]) {
        return Broken(node, "makes a value that exists");
      }
      made[static_cast<size_t>(id)] = true;
    }
    for (const auto& body : node.bodies) {
      RETURN_IF_ERROR(body->Validate());
    }
  }
  for (const Port& port : outputs) {
    if (!in_range(port.value) || !made[static_cast<size_t>(port.value)]) {
      return Internal("graph output '" + port.name + "' is never made");
    }
  }
  return OkStatus();
}

std::vector<int32_t> Graph::CountUses() const {
  std::vector<int32_t> uses(values.size());
  for (const Node& node : nodes) {
    for (const ValueId id : node.inputs) {
      if (id != kNoValue) ++uses[static_cast<size_t>(id)];
    }
  }
  for (const Port& port : outputs) ++uses[static_cast<size_t>(port.value)];
  return uses;
}

std::string Graph::ToText() const {
  std::string text;
  for (const Node& node : nodes) text += NodeText(*this, node) + "\n";
  return text;
}

}  // namespace millrace::models::graph
