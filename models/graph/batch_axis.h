// Whether the requests of a graph may be joined to one batch: a fact of the
// graph that batching builds on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/graph/ir.h"
#include "models/graph/jagged.h"

namespace millrace::models::graph {

// Batchable: every input but those of jagged features has the same symbol as
// its first dimension, every output has as many rows, and row i of each output
// depends on row i of the inputs alone; row i of a jagged feature is its bag i.
// Then a batch of several requests gives each one the bits that it would get
// alone.
struct BatchAxis {
  bool batchable = false;
  // Why not, as one sentence; empty when batchable.
  std::string reason = "";
  // Whether or not it is batchable. Their values follow each other in a batch,
  // and their offsets are shifted.
  std::vector<JaggedFeature> jagged = {};
  // ---- when batchable ----
  int32_t symbol = -1;   // of Graph::symbols
  int64_t min_rows = 1;  // of one run, as the symbol's range says
  int64_t max_rows = 1;
};

// Optimises the graph for a few trial sizes and looks at every node: some
// milliseconds for each. What it cannot prove is not batchable. The graph has
// met load-time shape inference.
BatchAxis FindBatchAxis(const Graph& graph);

// Whether the symbol is that of offsets with an end, so that its size is one
// more than the rows: no other input tells them.
bool CountsAnEnd(const BatchAxis& axis, const std::vector<Port>& inputs);

}  // namespace millrace::models::graph
