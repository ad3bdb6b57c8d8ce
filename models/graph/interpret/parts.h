// The parts of the interpreter: plain nodes, control flow, sequences.
#pragma once

#include <vector>

#include "config/base/status.h"
#include "models/graph/interpreter.h"

namespace millrace::models::graph {

using Operands = std::vector<const RuntimeValue*>;  // null: left out

// If, Loop, Scan, SequenceMap.
bool IsControlFlow(const Node& node);
StatusOr<std::vector<RuntimeValue>> RunControlFlow(
    const Node& node, const Operands& operands, const InterpretLimits& limits);

// What a loop without a trip has collected of a value: no element, of the type
// and the sizes that the body declares; a size that it leaves open is 0.
Tensor OfNoTrip(const Port& port);

// Operators that take or make a sequence.
bool IsOnSequences(const Node& node);
StatusOr<std::vector<RuntimeValue>> RunOnSequences(
    const Node& node, const Operands& operands, const InterpretLimits& limits);

// A plain operator by its name, on tensors.
StatusOr<Tensor> RunOp(std::string_view op,
                       const std::vector<const Tensor*>& operands,
                       const Attrs& attrs, const InterpretLimits& limits);

}  // namespace millrace::models::graph
