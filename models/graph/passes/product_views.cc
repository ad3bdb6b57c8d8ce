// A transpose behind a product and nothing else is how the product is written:
// its rows stay whole, only the axes before them change places.
#include <utility>
#include <vector>

#include "models/graph/passes/editor.h"
#include "models/graph/passes/fused.h"
#include "models/graph/passes/passes.h"

namespace millrace::models::graph {
namespace {

// Where an axis of the operand stands in the result; empty: rows are cut.
std::vector<int64_t> Places(const Node& transpose) {
  const std::vector<int64_t>& perm = transpose.attrs.Ints("perm");
  const auto rank = static_cast<int64_t>(perm.size());
  std::vector<int64_t> places(perm.size());
  for (int64_t i = 0; i < rank; ++i) {
    const int64_t axis = perm[static_cast<size_t>(i)];
    places[static_cast<size_t>(axis < 0 ? axis + rank : axis)] = i;
  }
  if (rank == 0 || places.back() != rank - 1) places.clear();
  return places;
}

}  // namespace

void WriteProductsInPlace(Graph& graph) {
  Editor editor(graph);
  for (Node& node : graph.nodes) {
    if (!node.Is("Transpose")) continue;
    const Node* product = editor.SoleMaker(node.inputs[0], fused::kMatMul.name);
    const std::vector<int64_t> places = Places(node);
    if (product == nullptr || places.empty()) continue;
    std::vector<int64_t> perm = ParamsOf<MatMulParams>(product->attrs).y_perm;
    for (int64_t& axis : perm) axis = places[static_cast<size_t>(axis)];
    Attrs attrs = product->attrs;
    EditParams<MatMulParams>(attrs).y_perm = std::move(perm);
    editor.Rewrite(node, fused::kMatMul, product->inputs, std::move(attrs));
  }
  editor.Finish();
}

}  // namespace millrace::models::graph
