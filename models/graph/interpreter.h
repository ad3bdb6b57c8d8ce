// Runs a graph node by node with the operators' plain functions: slow, sure,
// and the only thing that runs graphs whose shapes depend on their data. Passes
// fold constants with it and tests hold the plan against it.
//
// One thread; several may interpret one graph at once.
#pragma once

#include <cstdint>
#include <vector>

#include "config/base/status.h"
#include "models/graph/ir.h"
#include "models/graph/op.h"
#include "models/graph/runtime_value.h"
#include "models/graph/stop_check.h"

namespace millrace::models::graph {

struct InterpretLimits {
  int64_t max_tensor_bytes = int64_t{4} << 30;
  int64_t max_loop_trips = 1 << 20;
  StopCheck stopped = nullptr;  // asked before each node
};

// Inputs and outputs in the order of the graph's ports; inputs are only read.
// Errors name the node. RESOURCE_EXHAUSTED: a limit.
StatusOr<std::vector<Tensor>> Interpret(const Graph& graph,
                                        const std::vector<Tensor>& inputs,
                                        const InterpretLimits& limits = {});
// The same where ports may be sequences.
StatusOr<std::vector<RuntimeValue>> InterpretValues(
    const Graph& graph, const std::vector<RuntimeValue>& inputs,
    const InterpretLimits& limits = {});

// One node on operands that are all known; what a missing one holds is not
// looked at.
StatusOr<std::vector<Tensor>> RunNode(
    const Node& node, const std::vector<const Tensor*>& operands,
    const InterpretLimits& limits = {});

}  // namespace millrace::models::graph
