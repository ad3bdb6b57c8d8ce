// Names of the dimensions of a graph's inputs that may vary.
//
// An exporter's names are not facts: some write "?" for every dimension, others
// give one name to two sizes. A name that the arithmetic of the graph does not
// need is taken back, so that no request is refused for it.
#pragma once

#include "models/graph/ir.h"

namespace millrace::models::graph {

// Dimensions of inputs that have neither size nor symbol get a symbol of their
// own, "x.2" for axis 2 of the input "x".
void NameOpenDims(Graph& graph);

// A symbol that stands at several dimensions keeps those that must be of one
// size. Any other becomes a symbol of its own, "x.2": shape inference passed
// with another size there. First dimensions stay as they are: batches are
// joined by their name. Where a shape depends on data nothing is proven and all
// stays. InferAndFold has run on `graph` at load. Some milliseconds where a
// name is there twice, nothing otherwise.
void SeparateDims(Graph& graph);

}  // namespace millrace::models::graph
