#include "models/graph/interpreter.h"

#include <string>
#include <utility>

namespace millrace::models::graph {
namespace {

Status AtNode(const Node& node, const Status& status) {
  return status.Prefixed("node '" + node.name + "' (" +
                         std::string(node.op->name) + ")");
}

StatusOr<std::vector<Tensor>> Compute(
    const Node& node, const std::vector<const Tensor*>& operands,
    const InterpretLimits& limits) {
  std::vector<Arg> args(operands.size());
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i] == nullptr) continue;
    args[i] = {true, operands[i]->dtype(), operands[i]->shape(),
               operands[i]->bytes()};
  }
  const Call call{node, args};
  ASSIGN_OR_RETURN(const std::vector<ValueType> types, node.op->infer(call));
  std::vector<Tensor> tensors;
  std::vector<Result> results;
  for (const ValueType& type : types) {
    if (type.shape.num_elements() * DTypeBytes(type.dtype) >
        limits.max_tensor_bytes) {
      return ResourceExhausted(
          "the result " + TypeText(type.dtype, type.shape) +
          " is larger than the limit of " +
          std::to_string(limits.max_tensor_bytes) + " bytes");
    }
    Tensor& tensor = tensors.emplace_back(Tensor::Make(type.dtype, type.shape));
    results.push_back({type.dtype, type.shape, tensor.bytes()});
  }
  RETURN_IF_ERROR(node.op->run(call, results, Team{}));
  return tensors;
}

}  // namespace

StatusOr<std::vector<Tensor>> RunNode(
    const Node& node, const std::vector<const Tensor*>& operands,
    const InterpretLimits& limits) {
  auto results = Compute(node, operands, limits);
  if (!results.ok()) return AtNode(node, results.status());
  return results;
}

StatusOr<std::vector<Tensor>> Interpret(const Graph& graph,
                                        const std::vector<Tensor>& inputs,
                                        const InterpretLimits& limits) {
  CHECK(inputs.size() == graph.inputs.size(), "one tensor for each input");
  std::vector<Tensor> made(graph.values.size());
  std::vector<const Tensor*> known(graph.values.size());
  for (size_t i = 0; i < graph.values.size(); ++i) {
    known[i] = graph.values[i].constant.get();
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    known[static_cast<size_t>(graph.inputs[i].value)] = &inputs[i];
  }
  // A value goes when its last reader has run.
  std::vector<int32_t> uses = graph.CountUses();
  for (const Node& node : graph.nodes) {
    std::vector<const Tensor*> operands;
    for (const ValueId id : node.inputs) {
      operands.push_back(id == kNoValue ? nullptr
                                        : known[static_cast<size_t>(id)]);
    }
    ASSIGN_OR_RETURN(std::vector<Tensor> results,
                     RunNode(node, operands, limits));
    CHECK(results.size() == node.outputs.size(),
          "as many results as the node has outputs");
    for (size_t i = 0; i < results.size(); ++i) {
      if (node.outputs[i] == kNoValue) continue;
      const auto id = static_cast<size_t>(node.outputs[i]);
      made[id] = std::move(results[i]);
      known[id] = &made[id];
    }
    for (const ValueId id : node.inputs) {
      if (id == kNoValue) continue;
      const auto at = static_cast<size_t>(id);
      if (--uses[at] == 0) made[at] = Tensor();
    }
  }
  std::vector<Tensor> outputs;
  for (const Port& port : graph.outputs) {
    outputs.push_back(known[static_cast<size_t>(port.value)]->Share());
  }
  return outputs;
}

}  // namespace millrace::models::graph
