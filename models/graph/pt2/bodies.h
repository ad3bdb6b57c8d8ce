// Branches and loops: cond becomes If, while_loop Loop, scan and map Scan, with
// the meaning that ONNX gives these.
#pragma once

#include <functional>
#include <vector>

#include "config/base/status.h"
#include "models/graph/pt2/lowering.h"

namespace millrace::models::graph::pt2 {

// Makes the graph of a body. Before the inputs of the body of a loop stand the
// number of the trip and the condition.
using ImportBody =
    std::function<StatusOr<Graph>(const Program& body, bool of_loop)>;

// One value for each output of the node. Numbers among them are INT64 or BOOL,
// as the bodies' ports say.
StatusOr<std::vector<ValueId>> LowerBodies(const NodeSpec& node, Names& names,
                                           Emitter& emit,
                                           const ImportBody& import);

}  // namespace millrace::models::graph::pt2
