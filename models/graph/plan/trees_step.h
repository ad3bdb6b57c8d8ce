// Decision trees of a plan.
#pragma once

#include <memory>

#include "config/base/status.h"
#include "models/graph/plan/lower.h"

namespace millrace::models::graph {

// Of trees that the kernels have a form of, over FP32; null: of others.
StatusOr<std::unique_ptr<Step>> MakeTreesStep(const Node& node,
                                              const LowerContext& context);

}  // namespace millrace::models::graph
