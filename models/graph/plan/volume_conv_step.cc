// Convolutions of volumes, [n, depth, h, w, c]: a frame of the result is the
// sum of one convolution of images for each tap in depth that lies in the
// volume. Partial sums of a block of pixels wait in scratch, small enough for
// L2:
//
//   s0 = frame[z] * w[0]    s1 = s0 + frame[z + 1] * w[1]    y = f(s1 + … +
//   bias)
//
// Channels by themselves (depthwise) go by rows of pixels, others by any.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "models/graph/fused_params.h"
#include "models/graph/plan/epilogue.h"
#include "models/graph/plan/image_shape.h"
#include "models/graph/plan/makers.h"
#include "models/graph/plan/split.h"
#include "models/graph/plan/taps_first.h"

namespace millrace::models::graph {
namespace {

struct VolumeShape {
  ImageShape frame;  // its batch: volumes
  int64_t depth = 0;
  int64_t out_depth = 0;
  int64_t kernel = 0;
  int64_t stride = 0;
  int64_t dilation = 0;
  int64_t pad = 0;

  int64_t out_frames() const { return frame.batch * out_depth; }
  std::string Text() const {
    return frame.Text() + ", depth " + std::to_string(depth) + " -> " +
           std::to_string(out_depth) + ", kernel " + std::to_string(kernel);
  }
};

VolumeShape VolumeShapeOf(const Node& node, const LowerContext& context) {
  const Shape& x = context.shape(node.inputs[0]);
  const Shape& y = context.shape(node.outputs[0]);
  const NodeWindow& w = ParamsOf<ConvParams>(node.attrs).window;
  CHECK(x.rank() == 5 && w.kernel.size() == 3, "a volume and its window");
  return {.frame = {.batch = x[0],
                    .height = x[2],
                    .width = x[3],
                    .channels = x[4],
                    .out_height = y[2],
                    .out_width = y[3],
                    .outputs = y[4],
                    .window = {.kernel_h = w.kernel[1],
                               .kernel_w = w.kernel[2],
                               .stride_h = w.strides[1],
                               .stride_w = w.strides[2],
                               .dilation_h = w.dilations[1],
                               .dilation_w = w.dilations[2],
                               .pad_top = w.pads[1],
                               .pad_left = w.pads[2]},
                    .ld_x = x[4],
                    .ld_y = y[4]},
          .depth = x[1],
          .out_depth = y[1],
          .kernel = w.kernel[0],
          .stride = w.strides[0],
          .dilation = w.dilations[0],
          .pad = w.pads[0]};
}

// What both kinds of steps do alike: walk the frames of the result in blocks of
// units, which are pixels or rows of them, and the taps of each.
class VolumeStep : public Step {
 public:
  VolumeStep(const Node& node, const LowerContext& context,
             const VolumeShape& shape, int64_t unit_pixels)
      : dense_(context.dense),
        num_members_(context.num_members),
        shape_(shape),
        unit_pixels_(unit_pixels),
        x_(context.slot(node.inputs[0])),
        y_(context.slot(node.outputs[0])),
        epilogue_(node, context, shape.frame.outputs) {}

  int64_t scratch_bytes() const override {
    return num_members_ * MemberScratch() * 4;
  }

  Status Run(const Slots& slots, const Team& team) const override {
    const int64_t each = Units();
    const int64_t most = BlockUnits();
    const int64_t together = unit_pixels_ == 1 ? 16 : 1;
    const auto [begin, end] = team.Share(shape_.out_frames() * each, together);
    float* scratch =
        reinterpret_cast<float*>(slots.scratch) + team.index * MemberScratch();
    ForEachItem(begin, end, each,
                [&](int64_t frame, int64_t first, int64_t last) {
                  for (; first < last; first += most) {
                    RunBlock(frame, first, std::min(last, first + most), slots,
                             scratch);
                  }
                });
    return OkStatus();
  }

 protected:
  // One tap of units [first, last) of a frame; `x` begins its image, `y` and
  // the epilogue's residual their frame's pixel 0.
  struct Tap {
    int64_t index;
    const float* x;
    int64_t first;
    int64_t last;
    float* y;
    Epilogue epilogue;
    float* scratch;  // KernelScratch floats
  };
  virtual void RunTap(const Tap& tap) const = 0;
  virtual int64_t KernelScratch() const = 0;

  const DenseTable& dense_;
  const int64_t num_members_;
  const VolumeShape shape_;
  const int64_t unit_pixels_;
  const Slot x_;
  const Slot y_;
  const StepEpilogue epilogue_;

 private:
  int64_t Units() const { return shape_.frame.out_pixels() / unit_pixels_; }
  // Units whose sums stay in L2 beside the rest.
  int64_t BlockUnits() const {
    constexpr int64_t kFloats = 32 << 10;
    const int64_t unit =
        std::max<int64_t>(unit_pixels_ * shape_.frame.outputs, 1);
    const int64_t good = kFloats / unit;
    return std::max<int64_t>(std::min(good, Units()), 1);
  }
  int64_t BlockFloats() const {
    const int64_t floats = BlockUnits() * unit_pixels_ * shape_.frame.outputs;
    return (floats + 15) / 16 * 16;
  }
  int64_t MemberScratch() const { return KernelScratch() + 2 * BlockFloats(); }

  // Taps of output frame `z` that lie in the volume, [begin, end).
  std::pair<int64_t, int64_t> Taps(int64_t z) const {
    const VolumeShape& s = shape_;
    const int64_t first = z * s.stride - s.pad;
    int64_t begin = 0;
    while (begin < s.kernel && first + begin * s.dilation < 0) ++begin;
    int64_t end = s.kernel;
    while (end > begin && first + (end - 1) * s.dilation >= s.depth) --end;
    return {begin, end};
  }

  void RunBlock(int64_t frame, int64_t first, int64_t last, const Slots& slots,
                float* scratch) const {
    const VolumeShape& s = shape_;
    const Epilogue epilogue = epilogue_.At(slots);
    const int64_t volume = frame / s.out_depth;
    const int64_t z = frame % s.out_depth;
    // Arguments name pixel 0; sums of the block stand from its first one on.
    const int64_t before = first * unit_pixels_ * s.frame.outputs;
    float* y =
        slots.data<float>(y_) + frame * s.frame.out_pixels() * s.frame.outputs;
    const auto [begin, end] = Taps(z);
    if (begin == end) {
      return Empty(epilogue, (last - first) * unit_pixels_, y + before);
    }
    const float* sums = nullptr;
    for (int64_t t = begin; t < end; ++t) {
      const int64_t image =
          volume * s.depth + z * s.stride - s.pad + t * s.dilation;
      float* waiting =
          scratch + KernelScratch() + t % 2 * BlockFloats() - before;
      Tap tap{
          t,
          slots.data<float>(x_) + image * s.frame.pixels() * s.frame.channels,
          first,
          last,
          t + 1 == end ? y : waiting,
          t + 1 == end ? epilogue : Epilogue{},
          scratch};
      if (sums != nullptr) {
        tap.epilogue.residual = sums;
        tap.epilogue.ld_residual = s.frame.outputs;
        tap.epilogue.residual_first = true;
      }
      RunTap(tap);
      sums = tap.y;
    }
  }

  // Without taps nothing but the epilogue is left.
  void Empty(const Epilogue& epilogue, int64_t pixels, float* y) const {
    const int64_t n = shape_.frame.outputs;
    for (int64_t pixel = 0; pixel < pixels; ++pixel, y += n) {
      for (int64_t i = 0; i < n; ++i) {
        y[i] = epilogue.bias == nullptr ? 0 : epilogue.bias[i];
      }
      if (epilogue.f == Unary::kNone) continue;
      dense_.unary(epilogue.f, epilogue.a, epilogue.b, y, n, y);
    }
  }
};

class VolumeConvStep : public VolumeStep {
 public:
  VolumeConvStep(const Node& node, const LowerContext& context,
                 const VolumeShape& shape, int64_t groups, const float* packed)
      : VolumeStep(node, context, shape, 1),
        products_(context.products(node)),
        groups_(groups),
        packed_(packed) {}

  Factors factors() const override { return FactorsOf(products_); }
  double macs() const override {
    return static_cast<double>(shape_.out_frames() *
                               shape_.frame.out_pixels()) *
           static_cast<double>(shape_.frame.outputs * shape_.kernel * K());
  }

  std::string Text() const override {
    std::string text = "VolumeConv " + shape_.Text();
    if (groups_ > 1) text += ", " + std::to_string(groups_) + " groups";
    return text + epilogue_.Text();
  }

 private:
  void RunTap(const Tap& tap) const override {
    ConvArgs args = Sizes();
    args.pixel_begin = tap.first;
    args.pixel_end = tap.last;
    args.panel_end = (args.n + products_.panel - 1) / products_.panel;
    args.scratch = tap.scratch;
    const int64_t channels = args.x.channels;
    const int64_t each = products_.packed_floats(args.n, K());
    for (int64_t group = 0; group < groups_; ++group) {
      const int64_t n = group * args.n;
      args.x = shape_.frame.At(tap.x, 0, group * channels, channels);
      args.w = packed_ + (tap.index * groups_ + group) * each;
      args.y = tap.y + n;
      args.epilogue = tap.epilogue;
      if (args.epilogue.bias != nullptr) args.epilogue.bias += n;
      if (args.epilogue.residual != nullptr) args.epilogue.residual += n;
      products_.conv(args);
    }
  }

  // Of one tap and one group.
  int64_t K() const {
    return shape_.frame.taps() * shape_.frame.channels / groups_;
  }
  ConvArgs Sizes() const {
    const ImageShape& s = shape_.frame;
    return {.x = s.At(nullptr, 0, 0, s.channels / groups_),
            .window = s.window,
            .out_width = s.out_width,
            .n = s.outputs / groups_,
            .ld_y = s.outputs};
  }
  int64_t KernelScratch() const override {
    return (products_.conv_scratch_floats(Sizes()) + 15) / 16 * 16;
  }

  const DenseProducts& products_;
  const int64_t groups_;
  const float* const packed_;
};

class VolumeDepthwiseStep : public VolumeStep {
 public:
  VolumeDepthwiseStep(const Node& node, const LowerContext& context,
                      const VolumeShape& shape, const float* weights)
      : VolumeStep(node, context, shape,
                   std::max<int64_t>(shape.frame.out_width, 1)),
        weights_(weights) {}

  double macs() const override {
    return static_cast<double>(shape_.out_frames() *
                               shape_.frame.out_pixels()) *
           static_cast<double>(shape_.frame.outputs * shape_.kernel *
                               shape_.frame.taps());
  }

  std::string Text() const override {
    return "VolumeDepthwise " + shape_.Text() + epilogue_.Text();
  }

 private:
  void RunTap(const Tap& tap) const override {
    const ImageShape& s = shape_.frame;
    dense_.depthwise({.x = s.At(tap.x, 0, 0, s.channels),
                      .window = s.window,
                      .w = weights_ + tap.index * s.taps() * s.channels,
                      .out_width = s.out_width,
                      .row_begin = tap.first,
                      .row_end = tap.last,
                      .channel_end = s.channels,
                      .y = tap.y,
                      .ld_y = s.outputs,
                      .epilogue = tap.epilogue});
  }
  int64_t KernelScratch() const override { return 0; }

  const float* const weights_;
};

}  // namespace

StatusOr<std::unique_ptr<Step>> MakeVolumeConvStep(
    const Node& node, const LowerContext& context) {
  const VolumeShape shape = VolumeShapeOf(node, context);
  const ImageShape& frame = shape.frame;
  const int64_t groups = ParamsOf<ConvParams>(node.attrs).groups;
  const auto& weight = context.graph.value(node.inputs[1]).constant;
  const int64_t taps = frame.taps();
  if (groups > 1 && groups == frame.channels && groups == frame.outputs) {
    ASSIGN_OR_RETURN(
        const float* weights,
        context.packed.Get(
            weight, {PackedForm::Kind::kTapsFirst}, weight->num_elements(),
            [&](const Tensor& from, float* to) {
              const std::vector<float> moved = TapsFirst(
                  from.data<float>(), 1, frame.channels, shape.kernel * taps);
              std::copy(moved.begin(), moved.end(), to);
              return OkStatus();
            }));
    return std::unique_ptr<Step>(
        std::make_unique<VolumeDepthwiseStep>(node, context, shape, weights));
  }
  const DenseProducts& products = context.products(node);
  const int64_t n = frame.outputs / groups;
  const int64_t channels = frame.channels / groups;
  const int64_t k = taps * channels;
  const int64_t each = products.packed_floats(n, k);
  ASSIGN_OR_RETURN(
      const float* packed,
      context.packed.Get(
          weight, context.form(node, PackedForm::Kind::kVolume, {groups}),
          shape.kernel * groups * each, [&](const Tensor& from, float* to) {
            if (n == 0) return OkStatus();
            for (int64_t group = 0; group < groups; ++group) {
              // [n][depth taps][taps][c]: a tap in depth is a part of each row.
              const std::vector<float> w =
                  TapsFirst(from.data<float>() + group * n * shape.kernel * k,
                            n, channels, shape.kernel * taps);
              for (int64_t t = 0; t < shape.kernel; ++t) {
                products.pack(w.data() + t * k, n, k,
                              {.n = shape.kernel * k, .k = 1}, 0,
                              (n + products.panel - 1) / products.panel,
                              to + (t * groups + group) * each);
              }
            }
            return OkStatus();
          }));
  return std::unique_ptr<Step>(
      std::make_unique<VolumeConvStep>(node, context, shape, groups, packed));
}

}  // namespace millrace::models::graph
