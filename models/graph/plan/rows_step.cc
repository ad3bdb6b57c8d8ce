// Operators on the last axis of FP32 tensors: normalisation and softmax.
#include <algorithm>
#include <string>

#include "models/graph/ops/one_row.h"
#include "models/graph/plan/epilogue.h"
#include "models/graph/plan/makers.h"

namespace millrace::models::graph {
namespace {

// The rows of a tensor, which the team shares.
struct Rows {
  Rows(const Node& node, const LowerContext& context)
      : x(context.slot(node.inputs[0])),
        y(context.slot(node.outputs[0])),
        n(context.shape(node.inputs[0]).back()),
        count(context.shape(node.inputs[0]).num_elements() /
              std::max<int64_t>(n, 1)) {}

  std::string Text() const {
    return std::to_string(count) + " x " + std::to_string(n);
  }

  const Slot x;
  const Slot y;
  const int64_t n;
  const int64_t count;
};

bool IsLastAxis(const Node& node, const Graph& graph) {
  const ValueType& type = *graph.value(node.inputs[0]).type;
  const int64_t axis = node.attrs.Int("axis", -1);
  return type.dtype == DType::kF32 && type.shape.rank() > 0 &&
         node.outputs.size() == 1 &&
         (axis == -1 || axis == type.shape.rank() - 1);
}

class NormStep : public Step {
 public:
  NormStep(const Node& node, const LowerContext& context)
      : norm_(node.Is("LayerNormalization") ? context.dense.layer_norm
                                            : context.dense.rms_norm),
        rows_(node, context),
        weight_(Operand(node, context, 1)),
        bias_(Operand(node, context, 2)),
        round_(context.rounding(node.outputs[0])),
        num_members_(context.num_members),
        eps_(static_cast<float>(node.attrs.Float("epsilon", 1e-5))),
        name_(node.op->name) {}

  int64_t scratch_bytes() const override {
    return round_ == nullptr ? 0 : num_members_ * BlockRows() * rows_.n * 4;
  }

  Status Run(const Slots& slots, const Team& team) const override {
    const auto [begin, end] = team.Share(rows_.count);
    const auto row = [&](Slot slot) {
      return slot == kNoSlot ? nullptr : slots.data<float>(slot);
    };
    NormArgs args{.x = slots.data<float>(rows_.x),
                  .ld_x = rows_.n,
                  .row_begin = begin,
                  .row_end = end,
                  .n = rows_.n,
                  .weight = row(weight_),
                  .bias = row(bias_),
                  .eps = eps_,
                  .ld_y = rows_.n};
    if (round_ == nullptr) {
      args.y = slots.data<float>(rows_.y);
      norm_(args);
      return OkStatus();
    }
    args.y = reinterpret_cast<float*>(slots.scratch) +
             team.index * BlockRows() * rows_.n;
    args.row_begin = 0;
    for (int64_t at = begin; at < end; at += BlockRows()) {
      args.x = slots.data<float>(rows_.x) + at * rows_.n;
      args.row_end = std::min(end - at, BlockRows());
      norm_(args);
      round_(args.y, args.row_end * rows_.n,
             slots.data<Bf16>(rows_.y) + at * rows_.n);
    }
    return OkStatus();
  }

  std::string Text() const override {
    return name_ + " " + rows_.Text() + Bf16Text(false, round_ != nullptr);
  }

 private:
  // Rows that are rounded while they lie in the L1 cache.
  int64_t BlockRows() const { return std::max<int64_t>(1, 2048 / rows_.n); }

  static Slot Operand(const Node& node, const LowerContext& context, size_t i) {
    return i < node.inputs.size() ? context.slot(node.inputs[i]) : kNoSlot;
  }

  void (*const norm_)(const NormArgs&);
  const Rows rows_;
  const Slot weight_;
  const Slot bias_;
  const Rounding round_;
  const int64_t num_members_;
  const float eps_;
  const std::string name_;
};

class SoftmaxStep : public Step {
 public:
  SoftmaxStep(const Node& node, const LowerContext& context)
      : softmax_(context.dense.softmax),
        rows_(node, context),
        logarithm_(node.Is("LogSoftmax")) {}

  Status Run(const Slots& slots, const Team& team) const override {
    const auto [begin, end] = team.Share(rows_.count);
    softmax_({.x = slots.data<float>(rows_.x),
              .ld_x = rows_.n,
              .row_begin = begin,
              .row_end = end,
              .n = rows_.n,
              .logarithm = logarithm_,
              .y = slots.data<float>(rows_.y),
              .ld_y = rows_.n});
    return OkStatus();
  }

  std::string Text() const override { return "Softmax " + rows_.Text(); }

 private:
  void (*const softmax_)(const SoftmaxArgs&);
  const Rows rows_;
  const bool logarithm_;
};

}  // namespace

bool IsRowNorm(const Node& node, const Graph& graph) {
  if ((!node.Is("LayerNormalization") && !node.Is("RMSNormalization")) ||
      !IsLastAxis(node, graph)) {
    return false;
  }
  const Shape& x = graph.value(node.inputs[0]).type->shape;
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    if (node.inputs[i] == kNoValue) continue;
    const ValueType& type = *graph.value(node.inputs[i]).type;
    // One value a column; as many values in a column would scale rows.
    if (!IsOneRow(type.shape, x, x.rank() - 1) || type.dtype != DType::kF32) {
      return false;
    }
  }
  return true;
}

StatusOr<std::unique_ptr<Step>> MakeNormStep(const Node& node,
                                             const LowerContext& context) {
  if (!IsRowNorm(node, context.graph)) return std::unique_ptr<Step>();
  return std::unique_ptr<Step>(std::make_unique<NormStep>(node, context));
}

StatusOr<std::unique_ptr<Step>> MakeSoftmaxStep(const Node& node,
                                                const LowerContext& context) {
  if (!IsLastAxis(node, context.graph)) return std::unique_ptr<Step>();
  return std::unique_ptr<Step>(std::make_unique<SoftmaxStep>(node, context));
}

}  // namespace millrace::models::graph
