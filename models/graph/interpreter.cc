#include "models/graph/interpreter.h"

#include <string>
#include <utility>

#include "models/graph/interpret/parts.h"
#include "models/graph/string_types.h"
#include "models/tensor/strings.h"

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
  ASSIGN_OR_RETURN(const std::vector<ValueType> types,
                   InferTypes(Call{node, args}));
  if (types.size() < node.outputs.size()) {
    return InvalidArgument("it has " + std::to_string(types.size()) +
                           " results, but the graph needs " +
                           std::to_string(node.outputs.size()));
  }
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
  StringStore strings;
  if (node.op->facts.strings == Strings::kMakes) {
    args.push_back(StoreArg(&strings));
  }
  RETURN_IF_ERROR(node.op->run(Call{node, args}, results, Team{}));
  for (Tensor& tensor : tensors) {
    if (tensor.dtype() == kString) tensor = tensor.Copy();
  }
  return tensors;
}

StatusOr<std::vector<RuntimeValue>> RunPlain(const Node& node,
                                             const Operands& operands,
                                             const InterpretLimits& limits) {
  std::vector<const Tensor*> tensors;
  for (const RuntimeValue* operand : operands) {
    if (operand != nullptr && operand->is_sequence) {
      return InvalidArgument("an operand is a sequence, not a tensor");
    }
    tensors.push_back(operand != nullptr ? &operand->tensor : nullptr);
  }
  ASSIGN_OR_RETURN(std::vector<Tensor> made, Compute(node, tensors, limits));
  std::vector<RuntimeValue> results;
  for (Tensor& tensor : made) results.emplace_back(std::move(tensor));
  return results;
}

StatusOr<std::vector<RuntimeValue>> RunAny(const Node& node,
                                           const Operands& operands,
                                           const InterpretLimits& limits) {
  auto results = IsControlFlow(node)   ? RunControlFlow(node, operands, limits)
                 : IsOnSequences(node) ? RunOnSequences(node, operands, limits)
                                       : RunPlain(node, operands, limits);
  if (!results.ok()) return AtNode(node, results.status());
  if (results->size() < node.outputs.size()) {
    return AtNode(node, InvalidArgument("it has fewer results than the graph "
                                        "needs"));
  }
  return results;
}

}  // namespace

StatusOr<std::vector<Tensor>> RunNode(
    const Node& node, const std::vector<const Tensor*>& operands,
    const InterpretLimits& limits) {
  auto results = Compute(node, operands, limits);
  if (!results.ok()) return AtNode(node, results.status());
  return results;
}

StatusOr<Tensor> RunOp(std::string_view op,
                       const std::vector<const Tensor*>& operands,
                       const Attrs& attrs, const InterpretLimits& limits) {
  Node node;
  node.op = FindOp(op);
  if (node.op == nullptr) {
    return Unimplemented("there is no operator " + std::string(op));
  }
  node.outputs = {0};
  node.attrs = attrs;
  ASSIGN_OR_RETURN(std::vector<Tensor> results,
                   Compute(node, operands, limits));
  return std::move(results[0]);
}

StatusOr<std::vector<RuntimeValue>> InterpretValues(
    const Graph& graph, const std::vector<RuntimeValue>& inputs,
    const InterpretLimits& limits) {
  CHECK(inputs.size() == graph.inputs.size(), "one value for each input");
  std::vector<RuntimeValue> made(graph.values.size());
  Operands known(graph.values.size());
  for (size_t i = 0; i < graph.values.size(); ++i) {
    if (graph.values[i].constant == nullptr) continue;
    made[i] = RuntimeValue(graph.values[i].constant->Share());
    known[i] = &made[i];
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    known[static_cast<size_t>(graph.inputs[i].value)] = &inputs[i];
  }
  // A value goes when its last reader has run.
  std::vector<int32_t> uses = graph.CountUses();
  for (const Node& node : graph.nodes) {
    if (limits.stopped) RETURN_IF_ERROR(limits.stopped());
    Operands operands;
    for (const ValueId id : node.inputs) {
      operands.push_back(id == kNoValue ? nullptr
                                        : known[static_cast<size_t>(id)]);
    }
    ASSIGN_OR_RETURN(std::vector<RuntimeValue> results,
                     RunAny(node, operands, limits));
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] == kNoValue) continue;
      const auto id = static_cast<size_t>(node.outputs[i]);
      made[id] = std::move(results[i]);
      known[id] = &made[id];
    }
    for (const ValueId id : node.inputs) {
      if (id == kNoValue) continue;
      const auto at = static_cast<size_t>(id);
      if (--uses[at] == 0) made[at] = RuntimeValue();
    }
  }
  std::vector<RuntimeValue> outputs;
  for (const Port& port : graph.outputs) {
    outputs.push_back(known[static_cast<size_t>(port.value)]->Share());
  }
  return outputs;
}

StatusOr<std::vector<Tensor>> Interpret(const Graph& graph,
                                        const std::vector<Tensor>& inputs,
                                        const InterpretLimits& limits) {
  std::vector<RuntimeValue> values;
  for (const Tensor& input : inputs) values.emplace_back(input.Share());
  ASSIGN_OR_RETURN(std::vector<RuntimeValue> made,
                   InterpretValues(graph, values, limits));
  std::vector<Tensor> outputs;
  for (size_t i = 0; i < made.size(); ++i) {
    if (made[i].is_sequence) {
      return Unimplemented("output '" + graph.outputs[i].name +
                           "' is a sequence of tensors; only tensors are "
                           "answered");
    }
    outputs.push_back(std::move(made[i].tensor));
  }
  return outputs;
}

}  // namespace millrace::models::graph
