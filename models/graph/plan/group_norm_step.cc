// Group and instance normalisation of channels-last images: groups of all
// images are shared among the team.
#include <algorithm>
#include <string>

#include "models/graph/fused_params.h"
#include "models/graph/plan/makers.h"
#include "models/graph/plan/split.h"

namespace millrace::models::graph {
namespace {

class GroupNormStep : public Step {
 public:
  GroupNormStep(const Node& node, const LowerContext& context)
      : group_norm_(context.dense.group_norm),
        x_(context.slot(node.inputs[0])),
        y_(context.slot(node.outputs[0])),
        weight_(Operand(node, context, 1)),
        bias_(Operand(node, context, 2)),
        batch_(context.shape(node.inputs[0])[0]),
        channels_(context.shape(node.inputs[0]).back()),
        pixels_(context.shape(node.inputs[0])
                    .Product(1, context.shape(node.inputs[0]).rank() - 1)),
        groups_(ParamsOf<GroupNormParams>(node.attrs).num_groups),
        eps_(
            static_cast<float>(ParamsOf<GroupNormParams>(node.attrs).epsilon)) {
  }

  Status Run(const Slots& slots, const Team& team) const override {
    const auto row = [&](Slot slot) {
      return slot == kNoSlot ? nullptr : slots.data<float>(slot);
    };
    // Whole cache lines of channels.
    const int64_t unit = groups_ == channels_
                             ? 16
                             : std::max<int64_t>(16 * groups_ / channels_, 1);
    const auto [begin, end] = team.Share(batch_ * groups_, unit);
    const int64_t size = pixels_ * channels_;
    ForEachItem(begin, end, groups_,
                [&](int64_t image, int64_t first, int64_t last) {
                  group_norm_({.x = slots.data<float>(x_) + image * size,
                               .ld_x = channels_,
                               .pixels = pixels_,
                               .channels = channels_,
                               .groups = groups_,
                               .group_begin = first,
                               .group_end = last,
                               .weight = row(weight_),
                               .bias = row(bias_),
                               .eps = eps_,
                               .y = slots.data<float>(y_) + image * size,
                               .ld_y = channels_});
                });
    return OkStatus();
  }

  std::string Text() const override {
    return "GroupNorm " + std::to_string(batch_) + " x " +
           std::to_string(pixels_) + " x " + std::to_string(channels_) + ", " +
           std::to_string(groups_) + " groups";
  }

 private:
  static Slot Operand(const Node& node, const LowerContext& context, size_t i) {
    return i < node.inputs.size() ? context.slot(node.inputs[i]) : kNoSlot;
  }

  void (*const group_norm_)(const GroupNormArgs&);
  const Slot x_;
  const Slot y_;
  const Slot weight_;
  const Slot bias_;
  const int64_t batch_;
  const int64_t channels_;
  const int64_t pixels_;
  const int64_t groups_;
  const float eps_;
};

}  // namespace

StatusOr<std::unique_ptr<Step>> MakeGroupNormStep(const Node& node,
                                                  const LowerContext& context) {
  return std::unique_ptr<Step>(std::make_unique<GroupNormStep>(node, context));
}

}  // namespace millrace::models::graph
