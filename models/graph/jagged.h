// Jagged features of a graph: inputs of ranking models that have another number
// of values in each row, cut into rows by offsets, as torchrec's
// KeyedJaggedTensor has them for each key.
//
//   values   [n]     7 2 9 4      row 0: 7 2    row 1: none    row 2: 9 4
//   offsets  [rows]  0 2 2        with an end: 0 2 2 4
//   weights  [n]     of the values; may be missing
//
// They are inputs that nothing but EmbeddingBag reads, so that row i of the
// batch is bag i. Requests are joined by values that follow each other and
// offsets that are shifted, and a plan does not depend on the number of values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "models/graph/ir.h"

namespace millrace::models::graph {

// Numbers are places in Graph::inputs.
struct JaggedFeature {
  size_t values = 0;
  size_t offsets = 0;
  std::vector<size_t> weights = {};
  bool has_end = false;           // the last offset is where the last row ends
  int64_t num_rows = 0;           // of the smallest table that reads it
  std::vector<size_t> bags = {};  // places of its EmbeddingBags in Graph::nodes
};

std::vector<JaggedFeature> FindJagged(const Graph& graph);

// Of each input, whether it holds values or weights of a feature whose bags are
// all pooled by kernels, the weights as they come: their steps take as many
// values as a request has.
std::vector<bool> HoldsJaggedValues(const Graph& graph);

// Of made-up inputs, by the names of their symbols: offsets with an end are one
// more than the rows. Sizes that are there stay.
void SizeJaggedEnds(const Graph& graph, std::map<std::string, int64_t>& sizes);
// Made-up inputs become ones that the graph takes: offsets that spread the
// values evenly, and values that all tables have.
void FillJagged(const Graph& graph, std::vector<Tensor>& inputs);

}  // namespace millrace::models::graph
