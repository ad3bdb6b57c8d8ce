// Pools of channels-last images of bytes: the largest of a window, or the mean
// of a whole image.
#include <string>
#include <vector>

#include "models/graph/fused_params.h"
#include "models/graph/plan/byte_layer.h"
#include "models/graph/plan/image_shape.h"
#include "models/graph/plan/makers.h"
#include "models/graph/plan/split.h"

namespace millrace::models::graph {
namespace {

class ByteMaxStep : public Step {
 public:
  ByteMaxStep(const Node& node, const LowerContext& context)
      : int8_(context.int8),
        shape_(ImageShapeOf(node, context)),
        x_(context.slot(node.inputs[0])),
        y_(context.slot(node.outputs[0])) {}

  Status Run(const Slots& slots, const Team& team) const override {
    const ImageShape& s = shape_;
    const auto [begin, end] = team.Share(s.batch * s.out_height);
    ForEachItem(begin, end, s.out_height,
                [&](int64_t image, int64_t first, int64_t last) {
                  int8_.max_pool({.x = ByteImageAt(s, slots.data<uint8_t>(x_),
                                                   image, 0, s.channels, 0),
                                  .window = s.window,
                                  .out_width = s.out_width,
                                  .row_begin = first,
                                  .row_end = last,
                                  .y = slots.data<uint8_t>(y_) +
                                       image * s.out_pixels() * s.outputs,
                                  .ld_y = s.outputs});
                });
    return OkStatus();
  }

  std::string Text() const override { return "Int8 MaxPool " + shape_.Text(); }

 private:
  const Int8Table& int8_;
  const ImageShape shape_;
  const Slot x_;
  const Slot y_;
};

// Members share channels, a line of memory at a time.
class ByteMeanStep : public Step {
 public:
  ByteMeanStep(const Node& node, const LowerContext& context)
      : int8_(context.int8),
        num_members_(context.num_members),
        shape_(ImageShapeOf(node, context)),
        x_scale_(ParamsOf<PoolParams>(node.attrs).x),
        y_scale_(ParamsOf<PoolParams>(node.attrs).y),
        x_(context.slot(node.inputs[0])),
        y_(context.slot(node.outputs[0])) {}

  int64_t scratch_bytes() const override {
    return num_members_ * MemberFloats() * 4;
  }

  Status Run(const Slots& slots, const Team& team) const override {
    const ImageShape& s = shape_;
    const auto [begin, end] = team.Share(s.channels, 64);
    if (begin == end) return OkStatus();
    float* mine =
        reinterpret_cast<float*>(slots.scratch) + team.index * MemberFloats();
    auto* sums = reinterpret_cast<int32_t*>(mine);
    const double by = double{x_scale_.scale} / static_cast<double>(s.pixels());
    const double zero = static_cast<double>(s.pixels()) * x_scale_.zero;
    for (int64_t image = 0; image < s.batch; ++image) {
      int8_.column_sums(
          slots.data<uint8_t>(x_) + image * s.pixels() * s.channels + begin,
          s.pixels(), end - begin, s.channels, sums);
      const bool bytes = y_scale_.scale != 0;
      float* means =
          bytes ? mine : slots.data<float>(y_) + image * s.channels + begin;
      for (int64_t c = 0; c < end - begin; ++c) {
        means[c] = static_cast<float>((sums[c] - zero) * by);
      }
      if (!bytes) continue;
      int8_.quantise(mine, end - begin, 1.0f / y_scale_.scale, y_scale_.zero,
                     slots.data<uint8_t>(y_) + image * s.channels + begin);
    }
    return OkStatus();
  }

  std::string Text() const override {
    return "Int8 Mean " + shape_.Text() +
           (y_scale_.scale != 0 ? "" : " -> f32");
  }

 private:
  int64_t MemberFloats() const { return (shape_.channels + 63) / 64 * 64; }

  const Int8Table& int8_;
  const int64_t num_members_;
  const ImageShape shape_;
  const ByteScale x_scale_;
  const ByteScale y_scale_;
  const Slot x_;
  const Slot y_;
};

}  // namespace

StatusOr<std::unique_ptr<Step>> MakeBytePoolStep(const Node& node,
                                                 const LowerContext& context) {
  if (ParamsOf<PoolParams>(node.attrs).is_max) {
    return std::unique_ptr<Step>(std::make_unique<ByteMaxStep>(node, context));
  }
  return std::unique_ptr<Step>(std::make_unique<ByteMeanStep>(node, context));
}

}  // namespace millrace::models::graph
