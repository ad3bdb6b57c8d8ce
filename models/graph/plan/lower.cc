#include "models/graph/plan/lower.h"

#include "models/graph/passes/fused.h"
#include "models/graph/plan/makers.h"

namespace millrace::models::graph {
namespace {

using Maker = StatusOr<std::unique_ptr<Step>> (*)(const Node&,
                                                  const LowerContext&);
struct Row {
  const OpDef* op;
  Maker make;
};
constexpr Row kFused[] = {
    {&fused::kConv, MakeConvStep},
    {&fused::kLinear, MakeLinearStep},
    {&fused::kPointwise, MakePointwiseStep},
};

}  // namespace

StatusOr<std::unique_ptr<Step>> Lower(const Node& node,
                                      const LowerContext& context) {
  for (const Row& row : kFused) {
    if (row.op == node.op) return row.make(node, context);
  }
  CHECK(node.op->run != nullptr, "every fused operator has a step");
  return MakePlainStep(node, context);
}

}  // namespace millrace::models::graph
