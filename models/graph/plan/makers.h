// Makers of the steps for what passes fuse, one for each operator.
#pragma once

#include <memory>

#include "config/base/status.h"
#include "models/graph/plan/lower.h"
#include "models/graph/plan/step.h"

namespace millrace::models::graph {

StatusOr<std::unique_ptr<Step>> MakeConvStep(const Node& node,
                                             const LowerContext& context);
StatusOr<std::unique_ptr<Step>> MakeLinearStep(const Node& node,
                                               const LowerContext& context);
StatusOr<std::unique_ptr<Step>> MakePointwiseStep(const Node& node,
                                                  const LowerContext& context);

}  // namespace millrace::models::graph
