// How much of a graph's constants its plans will pack, estimated before the
// first plan.
#pragma once

#include <cstdint>

#include "models/graph/ir.h"

namespace millrace::models::graph {

// Elements of the FP32 weights of convolutions and products, each once, also
// where a Transpose stands between. What is computed from constants is missing:
// the answer is rather too small.
int64_t FloatsOfLayers(const Graph& graph);

}  // namespace millrace::models::graph
