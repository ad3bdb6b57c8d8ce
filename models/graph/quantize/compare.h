// How far a graph at reduced precision is from itself in FP32.
#pragma once

#include <vector>

#include "config/base/status.h"
#include "models/graph/execution_context.h"

namespace millrace::models::graph {

// Sets of inputs, or of outputs, in the order of the ports.
using TensorSets = std::vector<std::vector<Tensor>>;

StatusOr<TensorSets> RunAll(ExecutionContext& context,
                            const TensorSets& samples);

// The root mean square of differences over that of what is wanted, the worst
// output; of FP32 outputs, where what is wanted is finite. NaN that is not
// wanted counts as 1e9.
double ErrorOf(const TensorSets& got, const TensorSets& want);

}  // namespace millrace::models::graph
