// Puts images channels last and lets transposes vanish.
//
// Convolutions and pools read and write [n, h, w, c]; what stands around them
// gets axes in another order, and so on as far as that can be
// carried: through elementwise operators, concatenation, reductions, linear
// layers, reshapes that keep neighbours together. Transposes in the graph are
// orders, too, so those of attention heads and of layers that change between
// images and tokens mostly cancel. Only where an operator must have its axes as
// written, and at the graph's outputs, something is moved.
#pragma once

#include "config/base/status.h"
#include "models/graph/ir.h"

namespace millrace::models::graph {

// Every value of the graph has a type.
StatusOr<Graph> ChooseLayout(const Graph& graph);

}  // namespace millrace::models::graph
