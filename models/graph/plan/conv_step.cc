// Convolutions of channels-last images with everything behind them. Pixels of
// all images of a batch are shared among the team as one range; groups are
// convolutions of their own channels, one after the other.
#include <algorithm>
#include <string>
#include <utility>

#include "models/graph/passes/windows.h"
#include "models/graph/plan/epilogue.h"
#include "models/graph/plan/makers.h"
#include "models/graph/plan/split.h"

namespace millrace::models::graph {
namespace {

// Shapes as images: a signal of one dimension is an image of height 1.
struct ConvShape {
  int64_t batch, height, width, channels;  // of x
  int64_t out_height, out_width, outputs;
  int64_t groups;
  Window window;

  int64_t group_channels() const { return channels / groups; }
  int64_t group_outputs() const { return outputs / groups; }
  int64_t k() const {
    return window.kernel_h * window.kernel_w * group_channels();
  }
  int64_t out_pixels() const { return out_height * out_width; }
};

ConvShape ShapeOf(const Node& node, const LowerContext& context) {
  const Shape& x = context.shape(node.inputs[0]);
  const Shape& y = context.shape(node.outputs[0]);
  const bool flat = x.rank() == 3;
  const NodeWindow w = WindowFromAttrs(node.attrs);
  const size_t axes = w.kernel.size();
  const auto of = [&](const std::vector<int64_t>& list, bool row,
                      int64_t otherwise) {
    if (row && flat) return otherwise;
    return list[row || flat ? 0 : 1];
  };
  ConvShape shape{.batch = x[0],
                  .height = flat ? 1 : x[1],
                  .width = x[x.rank() - 2],
                  .channels = x.back(),
                  .out_height = flat ? 1 : y[1],
                  .out_width = y[y.rank() - 2],
                  .outputs = y.back(),
                  .groups = node.attrs.Int("group", 1),
                  .window = {}};
  CHECK(axes == static_cast<size_t>(x.rank() - 2), "a window fits its image");
  shape.window = {.kernel_h = of(w.kernel, true, 1),
                  .kernel_w = of(w.kernel, false, 1),
                  .stride_h = of(w.strides, true, 1),
                  .stride_w = of(w.strides, false, 1),
                  .dilation_h = of(w.dilations, true, 1),
                  .dilation_w = of(w.dilations, false, 1),
                  .pad_top = of(w.pads, true, 0),
                  .pad_left = of(w.pads, false, 0)};
  return shape;
}

class ConvStep : public Step {
 public:
  ConvStep(const Node& node, const LowerContext& context,
           const ConvShape& shape, const float* packed)
      : dense_(context.dense),
        num_members_(context.num_members),
        shape_(shape),
        x_(context.slot(node.inputs[0])),
        y_(context.slot(node.outputs[0])),
        packed_(packed),
        epilogue_(node, context, shape.outputs) {}

  int64_t scratch_bytes() const override {
    return num_members_ * MemberScratch() * 4;
  }

  Status Run(const Slots& slots, const Team& team) override {
    const ConvShape& s = shape_;
    const int64_t panels =
        (s.group_outputs() + dense_.panel - 1) / dense_.panel;
    const Part part = SplitProduct(s.batch * s.out_pixels(), panels, team);
    ConvArgs args{.x = {.data = nullptr,
                        .height = s.height,
                        .width = s.width,
                        .channels = s.group_channels(),
                        .ld_row = s.width * s.channels,
                        .ld_pixel = s.channels},
                  .window = s.window,
                  .out_width = s.out_width,
                  .n = s.group_outputs(),
                  .panel_begin = part.panel_begin,
                  .panel_end = part.panel_end,
                  .ld_y = s.outputs};
    args.scratch =
        reinterpret_cast<float*>(slots.scratch) + team.index * MemberScratch();
    const float* x = slots.data<float>(x_);
    float* y = slots.data<float>(y_);
    const Epilogue epilogue = epilogue_.At(slots);
    const int64_t pixels = s.out_pixels();
    for (int64_t at = part.row_begin; at < part.row_end;) {
      const int64_t image = at / pixels;
      args.pixel_begin = at - image * pixels;
      args.pixel_end = std::min(part.row_end - image * pixels, pixels);
      for (int64_t group = 0; group < s.groups; ++group) {
        const int64_t output = group * s.group_outputs();
        const int64_t moved = image * pixels * s.outputs + output;
        args.x.data = x + image * s.height * s.width * s.channels +
                      group * s.group_channels();
        args.w = packed_ + group * GroupFloats();
        args.y = y + moved;
        args.epilogue = epilogue;
        if (epilogue.bias != nullptr) args.epilogue.bias += output;
        if (epilogue.residual != nullptr) args.epilogue.residual += moved;
        if (epilogue.gate != nullptr) args.epilogue.gate += moved;
        dense_.conv(args);
      }
      at = image * pixels + args.pixel_end;
    }
    return OkStatus();
  }

  double macs() const override {
    return static_cast<double>(shape_.batch * shape_.out_pixels()) *
           static_cast<double>(shape_.outputs * shape_.k());
  }

  std::string Text() const override {
    const ConvShape& s = shape_;
    const auto number = [](int64_t n) { return std::to_string(n); };
    std::string text = "Conv " + number(s.batch) + " x " + number(s.height) +
                       "x" + number(s.width) + "x" + number(s.channels) +
                       " -> " + number(s.out_height) + "x" +
                       number(s.out_width) + "x" + number(s.outputs) +
                       ", kernel " + number(s.window.kernel_h) + "x" +
                       number(s.window.kernel_w);
    if (s.groups > 1) text += ", " + number(s.groups) + " groups";
    return text + epilogue_.Text();
  }

 private:
  int64_t MemberScratch() const {
    return (dense_.conv_scratch_floats(shape_.k()) + 15) / 16 * 16;
  }
  int64_t GroupFloats() const {
    return dense_.packed_floats(shape_.group_outputs(), shape_.k());
  }

  const DenseTable& dense_;
  const int64_t num_members_;
  const ConvShape shape_;
  const Slot x_;
  const Slot y_;
  const float* const packed_;
  const StepEpilogue epilogue_;
};

// [outputs][channels][taps] of one group to [outputs][taps][channels].
std::vector<float> TapsFirst(const float* w, int64_t outputs, int64_t channels,
                             int64_t taps) {
  std::vector<float> moved(static_cast<size_t>(outputs * channels * taps));
  float* to = moved.data();
  for (int64_t o = 0; o < outputs; ++o) {
    const float* from = w + o * channels * taps;
    for (int64_t t = 0; t < taps; ++t) {
      for (int64_t c = 0; c < channels; ++c) *to++ = from[c * taps + t];
    }
  }
  return moved;
}

}  // namespace

StatusOr<std::unique_ptr<Step>> MakeConvStep(const Node& node,
                                             const LowerContext& context) {
  const auto& weight = context.graph.value(node.inputs[1]).constant;
  const ConvShape shape = ShapeOf(node, context);
  const DenseTable& dense = context.dense;
  const int64_t n = shape.group_outputs();
  const int64_t taps = shape.window.kernel_h * shape.window.kernel_w;
  const int64_t each = dense.packed_floats(n, shape.k());
  ASSIGN_OR_RETURN(
      const float* packed,
      context.packed.Get(weight, 0, shape.groups * each, [&](float* to) {
        for (int64_t group = 0; group < shape.groups; ++group) {
          const std::vector<float> w =
              TapsFirst(weight->data<float>() + group * n * shape.k(), n,
                        shape.group_channels(), taps);
          dense.pack(w.data(), n, shape.k(), {.n = shape.k(), .k = 1}, 0,
                     (n + dense.panel - 1) / dense.panel, to + group * each);
        }
      }));
  return std::unique_ptr<Step>(
      std::make_unique<ConvStep>(node, context, shape, packed));
}

}  // namespace millrace::models::graph
