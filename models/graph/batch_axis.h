// Whether the requests of a graph may be joined to one batch: a fact of the
// graph that batching builds on.
#pragma once

#include <cstdint>
#include <string>

#include "models/graph/ir.h"

namespace millrace::models::graph {

// Batchable: every input has the same symbol as its first dimension, every
// output has as many rows, and row i of each output depends on row i of the
// inputs alone. Then a batch of several requests gives each one the bits that
// it would get alone.
struct BatchAxis {
  bool batchable = false;
  // Why not, as one sentence; empty when batchable.
  std::string reason = "";
  // ---- when batchable ----
  int32_t symbol = -1;   // of Graph::symbols
  int64_t min_rows = 1;  // of one run, as the symbol's range says
  int64_t max_rows = 1;
};

// Optimises the graph for a few trial sizes and looks at every node: some
// milliseconds for each. What it cannot prove is not batchable. The graph has
// met load-time shape inference.
BatchAxis FindBatchAxis(const Graph& graph);

}  // namespace millrace::models::graph
