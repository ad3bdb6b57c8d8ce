#include "models/graph/passes/activations.h"

#include <array>
#include <limits>
#include <string_view>

#include "models/graph/op.h"

namespace millrace::models::graph {
namespace {

// Functions without parameters of their own.
struct Row {
  std::string_view op;
  Unary f;
};
constexpr std::array kPlain = {
    Row{"Relu", Unary::kRelu},
    Row{"Sigmoid", Unary::kSigmoid},
    Row{"HardSwish", Unary::kHardSwish},
    Row{"Tanh", Unary::kTanh},
    Row{"Mish", Unary::kMish},
    Row{"Exp", Unary::kExp},
    Row{"Log", Unary::kLog},
    Row{"Sqrt", Unary::kSqrt},
    Row{"Reciprocal", Unary::kReciprocal},
    Row{"Neg", Unary::kNeg},
    Row{"Abs", Unary::kAbs},
    Row{"Erf", Unary::kErf},
    Row{"Floor", Unary::kFloor},
    Row{"Ceil", Unary::kCeil},
    Row{"Round", Unary::kRound},
};

// A bound of Clip: absent, or a constant scalar.
std::optional<float> Bound(const Graph& graph, const Node& node, size_t i,
                           float otherwise) {
  if (node.inputs.size() <= i || node.inputs[i] == kNoValue) return otherwise;
  const auto& constant = graph.value(node.inputs[i]).constant;
  if (constant == nullptr || constant->dtype() != DType::kF32 ||
      constant->num_elements() != 1) {
    return std::nullopt;
  }
  return *constant->data<float>();
}

std::optional<Activation> ClipOf(const Graph& graph, const Node& node) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto low = Bound(graph, node, 1, -kInfinity);
  const auto high = Bound(graph, node, 2, kInfinity);
  if (!low || !high) return std::nullopt;
  return Activation{Unary::kClip, *low, *high};
}

}  // namespace

std::optional<Activation> ActivationOf(const Graph& graph, const Node& node) {
  if (node.inputs.empty() || node.outputs.size() != 1 ||
      node.inputs[0] == kNoValue ||
      graph.value(node.inputs[0]).type->dtype != DType::kF32 ||
      graph.value(node.outputs[0]).type->dtype != DType::kF32) {
    return std::nullopt;
  }
  for (const Row& row : kPlain) {
    if (node.Is(row.op)) return Activation{row.f};
  }
  const auto number = [&](std::string_view name, double otherwise) {
    return static_cast<float>(node.attrs.Float(name, otherwise));
  };
  if (node.Is("Clip")) return ClipOf(graph, node);
  if (node.Is("Gelu")) {
    const bool tanh = node.attrs.Text("approximate", "none") == "tanh";
    return Activation{tanh ? Unary::kGeluTanh : Unary::kGeluErf};
  }
  if (node.Is("Swish") && number("alpha", 1) == 1) {
    return Activation{Unary::kSilu};
  }
  if (node.Is("LeakyRelu")) {
    return Activation{Unary::kLeakyRelu, number("alpha", 0.01)};
  }
  if (node.Is("Elu")) return Activation{Unary::kElu, number("alpha", 1)};
  if (node.Is("Softplus")) return Activation{Unary::kSoftplus, 1};
  if (node.Is("HardSigmoid")) {
    return Activation{Unary::kHardSigmoid, number("alpha", 0.2),
                      number("beta", 0.5)};
  }
  return std::nullopt;
}

std::string_view UnaryName(Unary f) {
  constexpr std::array<std::string_view, 27> kNames = {
      "none",       "relu", "clip", "leaky_relu", "sigmoid", "hardsigmoid",
      "hardswish",  "silu", "gelu", "gelu_tanh",  "tanh",    "elu",
      "softplus",   "mish", "exp",  "log",        "sqrt",    "rsqrt",
      "reciprocal", "neg",  "abs",  "erf",        "floor",   "ceil",
      "round",      "sin",  "cos"};
  return kNames[static_cast<size_t>(f)];
}

}  // namespace millrace::models::graph
