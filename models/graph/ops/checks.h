// What most operators ask of their operands.
#pragma once

#include <string>
#include <vector>

#include "models/graph/op.h"

namespace millrace::models::graph {

using OutTypes = std::vector<ValueType>;

// The first `needed` operands are given, and there are `most` at most.
Status CheckOperands(const Call& call, size_t needed, size_t most);
// Both operands have one type.
Status CheckSameType(const Arg& a, const Arg& b);
// INVALID_ARGUMENT: "FP32 [2, 3] is not what this operator takes".
Status WrongType(const Arg& arg);

// An integer constant of one element, or `otherwise` when it is left out.
StatusOr<int64_t> IntOf(const Arg& arg, std::string_view what,
                        int64_t otherwise);
// Axes from the operand or, when it is left out, all; sorted, each once.
StatusOr<std::vector<int>> AxesOf(const std::vector<int64_t>& axes, int rank);

}  // namespace millrace::models::graph
