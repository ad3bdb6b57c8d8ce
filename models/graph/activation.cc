#include "models/graph/activation.h"

#include <array>
#include <vector>

#include "models/graph/op.h"

namespace millrace::models::graph {

std::optional<Activation> ActivationOf(const Graph& graph, const Node& node) {
  if (node.op->facts.activation == nullptr || node.inputs.empty() ||
      node.outputs.size() != 1 || node.inputs[0] == kNoValue ||
      graph.value(node.inputs[0]).type->dtype != DType::kF32 ||
      graph.value(node.outputs[0]).type->dtype != DType::kF32) {
    return std::nullopt;
  }
  std::vector<Arg> args;
  for (const ValueId id : node.inputs) {
    Arg& arg = args.emplace_back();
    if (id == kNoValue) continue;
    const Value& value = graph.value(id);
    arg = {.given = true,
           .dtype = value.type->dtype,
           .shape = value.type->shape,
           .bytes = value.constant ? value.constant->bytes() : nullptr};
  }
  return node.op->facts.activation(Call{node, args});
}

std::string_view UnaryName(Unary f) {
  constexpr std::array<std::string_view, 27> kNames = {
      "none",       "relu", "clip", "leaky_relu", "sigmoid", "hardsigmoid",
      "hardswish",  "silu", "gelu", "gelu_tanh",  "tanh",    "elu",
      "softplus",   "mish", "exp",  "log",        "sqrt",    "rsqrt",
      "reciprocal", "neg",  "abs",  "erf",        "floor",   "ceil",
      "round",      "sin",  "cos"};
  static_assert(kNames.size() == static_cast<size_t>(Unary::kCos) + 1,
                "a name for each function");
  return kNames[static_cast<size_t>(f)];
}

}  // namespace millrace::models::graph
