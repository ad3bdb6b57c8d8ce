#include "models/graph/plan/lower.h"

namespace millrace::models::graph {

StatusOr<std::unique_ptr<Step>> Lower(const Node& node,
                                      const LowerContext& context) {
  return MakePlainStep(node, context);
}

}  // namespace millrace::models::graph
