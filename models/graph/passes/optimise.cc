#include <utility>

#include "models/graph/passes/copied_pixels.h"
#include "models/graph/passes/layout.h"
#include "models/graph/passes/passes.h"

namespace millrace::models::graph {

StatusOr<Graph> Optimise(Graph typed) {
  FixBags(typed);
  SpellOutEinsums(typed);
  Simplify(typed);
  RecogniseGelu(typed);
  KeepProductsFloat(typed);
  RecogniseAttention(typed);
  ASSIGN_OR_RETURN(Graph graph, ChooseLayout(typed));
  ReadHeadsInPlace(graph);
  WriteProductsInPlace(graph);
  FuseEpilogues(graph);
  FuseQuantised(graph);
  LayersBeforeCopies(graph);
  FusePointwise(graph);
  FuseQuantisedPointwise(graph);
  return graph;
}

}  // namespace millrace::models::graph
