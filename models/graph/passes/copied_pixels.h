// Moves operators on single pixels in front of an enlarging Resize that only
// copies pixels: fewer pixels to compute, the same bits.
#pragma once

#include "models/graph/ir.h"

namespace millrace::models::graph {

// A fused Resize whose pixels are copies.
bool CopiesPixels(const Node& node);
// That makes no fewer of them than there were.
bool EnlargesByCopies(const Node& node, const Graph& graph);

// What is copied is quantised before rather than behind.
void QuantiseBeforeCopies(Graph& graph);
// Layers with kernels of one pixel come before the copies, too.
void LayersBeforeCopies(Graph& graph);

}  // namespace millrace::models::graph
