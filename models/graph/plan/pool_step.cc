// Pools of channels-last images.
#include <string>

#include "models/graph/fused_params.h"
#include "models/graph/plan/epilogue.h"
#include "models/graph/plan/image_shape.h"
#include "models/graph/plan/makers.h"
#include "models/graph/plan/split.h"

namespace millrace::models::graph {
namespace {

class PoolStep : public Step {
 public:
  PoolStep(const Node& node, const LowerContext& context)
      : dense_(context.dense),
        shape_(ImageShapeOf(node, context)),
        kind_(KindOf(node)),
        x_(context.slot(node.inputs[0])),
        y_(context.slot(node.outputs[0])),
        max_pool_(context.is_bf16(node.inputs[0]) ? context.bf16->max_pool
                                                  : nullptr) {}

  Status Run(const Slots& slots, const Team& team) const override {
    if (IsWholeMean()) {
      Means(slots, team);
      return OkStatus();
    }
    const ImageShape& s = shape_;
    const auto [begin, end] = team.Share(s.batch * s.out_height);
    ForEachItem(begin, end, s.out_height,
                [&](int64_t image, int64_t first, int64_t last) {
                  const int64_t moved = image * s.out_pixels() * s.ld_y;
                  PoolArgs args{.x = s.At(nullptr, 0, 0, s.channels),
                                .window = s.window,
                                .kind = kind_,
                                .pad_bottom = s.pad_bottom,
                                .pad_right = s.pad_right,
                                .out_width = s.out_width,
                                .row_begin = first,
                                .row_end = last,
                                .ld_y = s.ld_y};
                  if (max_pool_ != nullptr) {
                    args.x_bf16 = slots.data<Bf16>(x_) + s.Offset(image, 0);
                    args.y_bf16 = slots.data<Bf16>(y_) + moved;
                    max_pool_(args);
                  } else {
                    args.x = s.At(slots.data<float>(x_), image, 0, s.channels);
                    args.y = slots.data<float>(y_) + moved;
                    dense_.pool(args);
                  }
                });
    return OkStatus();
  }

  std::string Text() const override {
    return (kind_ == PoolKind::kMax ? "MaxPool " : "AveragePool ") +
           shape_.Text() + Bf16Text(max_pool_ != nullptr, max_pool_ != nullptr);
  }

 private:
  static PoolKind KindOf(const Node& node) {
    const auto& params = ParamsOf<PoolParams>(node.attrs);
    if (params.is_max) return PoolKind::kMax;
    return params.count_include_pad ? PoolKind::kMeanPadded : PoolKind::kMean;
  }

  bool IsWholeMean() const {
    const ImageShape& s = shape_;
    return kind_ == PoolKind::kMean && s.out_pixels() == 1 &&
           s.window.kernel_h == s.height && s.window.kernel_w == s.width &&
           s.window.pad_top == 0 && s.window.pad_left == 0;
  }

  // Members share channels, a line of memory at a time.
  void Means(const Slots& slots, const Team& team) const {
    const ImageShape& s = shape_;
    const auto [begin, end] = team.Share(s.channels, 16);
    for (int64_t image = 0; image < s.batch; ++image) {
      dense_.column_means(slots.data<float>(x_) + s.Offset(image, begin),
                          s.pixels(), end - begin, s.ld_x,
                          slots.data<float>(y_) + image * s.ld_y + begin);
    }
  }

  const DenseTable& dense_;
  const ImageShape shape_;
  const PoolKind kind_;
  const Slot x_;
  const Slot y_;
  void (*const max_pool_)(const PoolArgs&);  // of what is in bf16; or null
};

}  // namespace

StatusOr<std::unique_ptr<Step>> MakePoolStep(const Node& node,
                                             const LowerContext& context) {
  return std::unique_ptr<Step>(std::make_unique<PoolStep>(node, context));
}

}  // namespace millrace::models::graph
