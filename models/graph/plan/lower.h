// From nodes of a typed graph to steps: a table of makers, each of which may
// decline; the operator's plain function is what remains.
#pragma once

#include <memory>
#include <vector>

#include "config/base/status.h"
#include "models/cpu/graph_int8_kernels.h"
#include "models/cpu/graph_kernels.h"
#include "models/graph/ir.h"
#include "models/graph/plan/joined.h"
#include "models/graph/plan/kernels.h"
#include "models/graph/plan/packed_weights.h"
#include "models/graph/plan/step.h"

namespace millrace::models::graph {

// Rounds n values to bf16.
using Rounding = void (*)(const float* x, int64_t n, Bf16* y);

struct LowerContext {
  const Graph& graph;
  const std::vector<Slot>& slot_of;  // of each value
  const std::vector<Place>& places;  // likewise
  int num_members;                   // of the team
  const DenseTable& dense;
  const Int8Table& int8;
  const DenseProducts* bf16;  // may be null
  WeightPacker& packed;
  OneDnnLayers* onednn = nullptr;  // null: our kernels compute all layers

  // Of a layer, as its attribute `bf16` and this machine want it.
  const DenseProducts& products(const Node& node) const {
    const bool rounds = bf16 != nullptr && node.attrs.Int("bf16", 0) != 0;
    return rounds ? *bf16 : dense;
  }
  // The form in which those products want its weight.
  PackedForm form(const Node& node, PackedForm::Kind kind,
                  std::vector<int64_t> sizes = {}) const {
    return {kind, std::move(sizes), &products(node) == bf16};
  }

  const ValueType& type(ValueId id) const { return *graph.value(id).type; }
  const Shape& shape(ValueId id) const { return type(id).shape; }
  bool is_bf16(ValueId id) const { return type(id).dtype == DType::kBF16; }
  // Of a result that is kept in bf16; null for others.
  Rounding rounding(ValueId id) const {
    return is_bf16(id) ? bf16->round : nullptr;
  }
  const Tensor* constant(ValueId id) const {
    return graph.value(id).constant.get();
  }
  const Place& place(ValueId id) const {
    return places[static_cast<size_t>(id)];
  }
  // Of rows of the last axis, in values. Only steps of operators that are
  // known to take such see another one than the axis' size.
  int64_t distance(ValueId id) const { return place(id).distance; }
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
