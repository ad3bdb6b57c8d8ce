// Nodes without effect, whose result is their operand: an Expand to the size it
// has, a Slice of everything, a Cast to its own type.
#pragma once

#include <vector>

#include "models/graph/op.h"

namespace millrace::models::graph {

// `types`: of the results. Operands may lack their bytes.
bool IsNeedless(const Call& call, const std::vector<ValueType>& types);

}  // namespace millrace::models::graph
