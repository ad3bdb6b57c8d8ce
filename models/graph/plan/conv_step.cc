// Convolutions of channels-last images with everything behind them. Pixels of
// all images of a batch are shared among the team as one range; groups are
// convolutions of their own channels, one after the other.
#include <algorithm>
#include <string>
#include <utility>

#include "models/graph/passes/fused.h"
#include "models/graph/plan/epilogue.h"
#include "models/graph/plan/image_shape.h"
#include "models/graph/plan/makers.h"
#include "models/graph/plan/split.h"
#include "models/graph/plan/taps_first.h"

namespace millrace::models::graph {
namespace {

class ConvStep : public Step {
 public:
  ConvStep(const Node& node, const LowerContext& context,
           const ImageShape& shape, int64_t groups, const float* packed)
      : products_(context.products(node)),
        num_members_(context.num_members),
        shape_(shape.Stacked()),
        text_(shape.Text()),
        groups_(groups),
        x_(context.slot(node.inputs[0])),
        y_(context.slot(node.outputs[0])),
        of_bf16_(context.is_bf16(node.inputs[0])),
        to_bf16_(context.is_bf16(node.outputs[0])),
        packed_(packed),
        epilogue_(node, context, shape.outputs) {}

  int64_t scratch_bytes() const override {
    return num_members_ * MemberScratch() * 4;
  }

  Status Run(const Slots& slots, const Team& team) const override {
    const ImageShape& s = shape_;
    ConvArgs args = Sizes();
    const int64_t n = args.n;
    const int64_t channels = args.x.channels;
    const bool in_place = of_bf16_ && s.taps() == 1;
    const Part part = SplitProduct(
        s.batch * s.out_pixels(), (n + products_.panel - 1) / products_.panel,
        team, !in_place && products_.conv_scratch_floats(args) > 0,
        products_.costs);
    args.panel_begin = part.panel_begin;
    args.panel_end = part.panel_end;
    args.scratch =
        reinterpret_cast<float*>(slots.scratch) + team.index * MemberScratch();
    const Epilogue epilogue = epilogue_.At(slots);
    const int64_t pixels = s.out_pixels();
    ForEachItem(part.row_begin, part.row_end, pixels,
                [&](int64_t image, int64_t first, int64_t last) {
                  args.pixel_begin = first;
                  args.pixel_end = last;
                  for (int64_t group = 0; group < groups_; ++group) {
                    const int64_t moved = image * pixels * s.ld_y + group * n;
                    if (of_bf16_) {
                      args.x_bf16 = slots.data<Bf16>(x_) +
                                    s.Offset(image, group * channels);
                    } else {
                      args.x = s.At(slots.data<float>(x_), image,
                                    group * channels, channels);
                    }
                    args.w = packed_ + group * products_.packed_floats(n, K());
                    if (to_bf16_) {
                      args.y_bf16 = slots.data<Bf16>(y_) + moved;
                    } else {
                      args.y = slots.data<float>(y_) + moved;
                    }
                    args.epilogue = Moved(epilogue, image * pixels, group * n);
                    products_.conv(args);
                  }
                });
    return OkStatus();
  }

  Factors factors() const override { return FactorsOf(products_); }
  double macs() const override {
    return static_cast<double>(shape_.batch * shape_.out_pixels()) *
           static_cast<double>(shape_.outputs * K());
  }

  std::string Text() const override {
    std::string text = "Conv " + text_;
    if (groups_ > 1) text += ", " + std::to_string(groups_) + " groups";
    return text + epilogue_.Text() + Bf16Text(of_bf16_, to_bf16_);
  }

 private:
  int64_t K() const { return shape_.taps() * shape_.channels / groups_; }
  // Of one group of one image.
  ConvArgs Sizes() const {
    return {.x = shape_.At(nullptr, 0, 0, shape_.channels / groups_),
            .window = shape_.window,
            .out_width = shape_.out_width,
            .n = shape_.outputs / groups_,
            .ld_y = shape_.ld_y};
  }
  int64_t MemberScratch() const {
    return (products_.conv_scratch_floats(Sizes()) + 15) / 16 * 16;
  }

  const DenseProducts& products_;
  const int64_t num_members_;
  const ImageShape shape_;
  const std::string text_;  // of the shape
  const int64_t groups_;
  const Slot x_;
  const Slot y_;
  const bool of_bf16_;
  const bool to_bf16_;
  const float* const packed_;
  const StepEpilogue epilogue_;
};

class DepthwiseStep : public Step {
 public:
  DepthwiseStep(const Node& node, const LowerContext& context,
                const ImageShape& shape, const float* weights)
      : of_bf16_(context.is_bf16(node.inputs[0])),
        depthwise_(of_bf16_ ? context.bf16->depthwise_bf16
                            : context.dense.depthwise),
        shape_(shape),
        panel_(context.dense.panel),
        x_(context.slot(node.inputs[0])),
        y_(context.slot(node.outputs[0])),
        weights_(weights),
        round_(context.rounding(node.outputs[0])),
        num_members_(context.num_members),
        epilogue_(node, context, shape.outputs) {}

  int64_t scratch_bytes() const override {
    return round_ == nullptr ? 0 : num_members_ * RowFloats() * 4;
  }

  Status Run(const Slots& slots, const Team& team) const override {
    const ImageShape& s = shape_;
    const Epilogue epilogue = epilogue_.At(slots);
    float* row =
        reinterpret_cast<float*>(slots.scratch) + team.index * RowFloats();
    const Part part = SplitEvenly(s.batch * s.out_height,
                                  (s.channels + panel_ - 1) / panel_, team);
    ForEachItem(
        part.row_begin, part.row_end, s.out_height,
        [&](int64_t image, int64_t first, int64_t last) {
          const int64_t first_pixel = image * s.out_pixels();
          const int64_t moved = first_pixel * s.ld_y;
          DepthwiseArgs args{
              .x = s.At(nullptr, 0, 0, s.channels),
              .window = s.window,
              .w = weights_,
              .out_width = s.out_width,
              .row_begin = first,
              .row_end = last,
              .channel_begin = part.panel_begin * panel_,
              .channel_end = std::min(part.panel_end * panel_, s.channels),
              .ld_y = s.ld_y,
              .epilogue = Moved(epilogue, first_pixel, 0)};
          if (of_bf16_) {
            args.x_bf16 = slots.data<Bf16>(x_) + s.Offset(image, 0);
          } else {
            args.x.data = slots.data<float>(x_) + s.Offset(image, 0);
          }
          if (round_ == nullptr) {
            args.y = slots.data<float>(y_) + moved;
            depthwise_(args);
          } else {
            args.y = row;
            args.ld_y = s.outputs;
            Rounded(args, slots.data<Bf16>(y_) + moved);
          }
        });
    return OkStatus();
  }

  double macs() const override {
    return static_cast<double>(shape_.batch * shape_.out_pixels()) *
           static_cast<double>(shape_.outputs * shape_.taps());
  }

  std::string Text() const override {
    return "Depthwise " + shape_.Text() + epilogue_.Text() +
           Bf16Text(of_bf16_, round_ != nullptr);
  }

 private:
  // Of one output row, which is rounded while it lies in the cache.
  int64_t RowFloats() const { return shape_.out_width * shape_.outputs; }
  void Rounded(DepthwiseArgs args, Bf16* y) const {
    const int64_t end = args.row_end;
    const int64_t some = args.channel_end - args.channel_begin;
    const bool all = some == shape_.outputs && shape_.ld_y == shape_.outputs;
    for (int64_t row = args.row_begin; row < end; ++row) {
      args.row_begin = row;
      args.row_end = row + 1;
      args.y_row = row;
      depthwise_(args);
      Bf16* to = y + row * shape_.out_width * shape_.ld_y;
      if (all) {
        round_(args.y, RowFloats(), to);
        continue;
      }
      for (int64_t pixel = 0; pixel < shape_.out_width; ++pixel) {
        const int64_t c = args.channel_begin;
        round_(args.y + pixel * shape_.outputs + c, some,
               to + pixel * shape_.ld_y + c);
      }
    }
  }

  const bool of_bf16_;
  void (*const depthwise_)(const DepthwiseArgs&);
  const ImageShape shape_;
  const int64_t panel_;
  const Slot x_;
  const Slot y_;
  const float* const weights_;
  const Rounding round_;
  const int64_t num_members_;
  const StepEpilogue epilogue_;
};

StatusOr<std::unique_ptr<Step>> MakeDepthwise(const Node& node,
                                              const LowerContext& context,
                                              const ImageShape& shape) {
  const auto& weight = context.graph.value(node.inputs[1]).constant;
  const int64_t taps = shape.taps();
  ASSIGN_OR_RETURN(const float* weights,
                   context.packed.Get(weight, {PackedForm::Kind::kTapsFirst},
                                      weight->num_elements(),
                                      [&](const Tensor& from, float* to) {
                                        const float* w = from.data<float>();
                                        for (int64_t t = 0; t < taps; ++t) {
                                          for (int64_t c = 0;
                                               c < shape.channels; ++c) {
                                            *to++ = w[c * taps + t];
                                          }
                                        }
                                        return OkStatus();
                                      }));
  return std::unique_ptr<Step>(
      std::make_unique<DepthwiseStep>(node, context, shape, weights));
}

}  // namespace

bool IsDepthwise(const Node& node, const Graph& graph) {
  if (node.op != &fused::kConv) return false;
  const int64_t groups = ParamsOf<ConvParams>(node.attrs).groups;
  return groups > 1 &&
         groups == graph.value(node.inputs[0]).type->shape.back() &&
         groups == graph.value(node.outputs[0]).type->shape.back();
}

StatusOr<std::unique_ptr<Step>> MakeConvStep(const Node& node,
                                             const LowerContext& context) {
  const ImageShape shape = ImageShapeOf(node, context);
  if (IsDepthwise(node, context.graph)) {
    return MakeDepthwise(node, context, shape);
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Step> faster,
                   MakeWinogradStep(node, context));
  if (faster != nullptr) return faster;
  const int64_t groups = ParamsOf<ConvParams>(node.attrs).groups;
  const auto& weight = context.graph.value(node.inputs[1]).constant;
  const DenseProducts& products = context.products(node);
  const int64_t n = shape.outputs / groups;
  const int64_t channels = shape.channels / groups;
  const int64_t k = shape.taps() * channels;
  const int64_t each = products.packed_floats(n, k);
  ASSIGN_OR_RETURN(
      const float* packed,
      context.packed.GetByParts(
          weight, context.form(node, PackedForm::Kind::kConvolution, {groups}),
          groups * each, [&](const Tensor& from, float* to, const Team& team) {
            const int64_t panels = (n + products.panel - 1) / products.panel;
            const auto [begin, end] = team.Share(groups * panels);
            ForEachItem(
                begin, end, panels,
                [&](int64_t group, int64_t first, int64_t last) {
                  const int64_t row = first * products.panel;
                  const int64_t rows = std::min(last * products.panel, n) - row;
                  const std::vector<float> w =
                      TapsFirst(from.data<float>() + (group * n + row) * k,
                                rows, channels, shape.taps());
                  products.pack(
                      w.data(), rows, k, {.n = k, .k = 1}, 0, last - first,
                      to + group * each + products.packed_floats(row, k));
                });
          }));
  return std::unique_ptr<Step>(
      std::make_unique<ConvStep>(node, context, shape, groups, packed));
}

}  // namespace millrace::models::graph
