// From nodes of a settled graph to steps: a table of makers, each of which may
// decline; the operator's plain function is what remains.
#pragma once

#include <memory>
#include <vector>

#include "config/base/status.h"
#include "models/cpu/dense.h"
#include "models/cpu/dense_int8.h"
#include "models/graph/ir.h"
#include "models/graph/plan/kernels.h"
#include "models/graph/plan/packed_weights.h"
#include "models/graph/plan/step.h"

namespace millrace::models::graph {

struct LowerContext {
  const Graph& graph;
  const std::vector<Slot>& slot_of;  // of each value
  int num_members;                   // of the team
  const DenseTable& dense;
  const Int8Table& int8;
  PackedWeights& packed;

  const ValueType& type(ValueId id) const { return *graph.value(id).type; }
  const Shape& shape(ValueId id) const { return type(id).shape; }
  const Tensor* constant(ValueId id) const {
    return graph.value(id).constant.get();
  }
  Slot slot(ValueId id) const {
    return id == kNoValue ? kNoSlot : slot_of[static_cast<size_t>(id)];
  }
};

StatusOr<std::unique_ptr<Step>> Lower(const Node& node,
                                      const LowerContext& context);

// The node's plain function.
std::unique_ptr<Step> MakePlainStep(const Node& node,
                                    const LowerContext& context);

}  // namespace millrace::models::graph
