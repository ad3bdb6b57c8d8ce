// Functions of one value that the dense kernels know, which a layer before can
// apply to its results.
#pragma once

#include <optional>
#include <string_view>

#include "models/graph/fused_params.h"
#include "models/graph/ir.h"

namespace millrace::models::graph {

// Nothing when the node is not such a function of its first operand, in FP32,
// with constant parameters: its operator's row says so (OpFacts::activation).
// Values have types.
std::optional<Activation> ActivationOf(const Graph& graph, const Node& node);

// For people: "relu", "gelu_tanh".
std::string_view UnaryName(Unary f);

}  // namespace millrace::models::graph
