// Shape inference and constant folding: all that can be known of a graph before
// it runs, once the sizes of its inputs are known.
//
// Values get their types by each operator's rule. Nodes whose operands are all
// constants become constants, so shapes that the graph computes with are gone.
// If and Loop whose condition and trip count are constants are replaced by
// their bodies, sequences by the tensors in them. Values without readers
// are left out. Without input types, only what does not depend on them is done:
// that is for load time, so that constants are folded once and not for each
// size.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "config/base/status.h"
#include "models/graph/ir.h"

namespace millrace::models::graph {

struct FoldLimits {
  int64_t max_nodes = 1 << 20;  // after loops are unrolled
  // A folded result may have this many bytes, or as many as its operands.
  int64_t max_folded_bytes = int64_t{16} << 20;
  // Loops are unrolled while the nodes of their bodies, counted anew for each
  // trip, and the bytes that these fold to are no more than this, of all loops
  // together. What goes beyond is interpreted.
  int64_t max_unrolled_nodes = 1 << 18;
  int64_t max_unrolled_bytes = int64_t{1} << 30;
};

// `input_types`: of the graph's inputs, or empty at load time. `input_values`:
// inputs whose values count as known, null elsewhere; may be empty.
// FAILED_PRECONDITION for which IsNeedsBytes holds: a shape or a condition
// depends on data, or a loop makes too many trips to be unrolled, so the graph
// can only be interpreted. Other errors name the
// node.
StatusOr<Graph> InferAndFold(
    const Graph& graph, const std::vector<ValueType>& input_types,
    const std::vector<const Tensor*>& input_values = {},
    const FoldLimits& limits = {});

}  // namespace millrace::models::graph
