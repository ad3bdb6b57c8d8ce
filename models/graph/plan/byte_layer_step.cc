// Convolutions and linear layers on bytes. A linear layer is a 1 x 1
// convolution of an image with one row. Pixels of all images of a batch are
// shared among the team as one range; groups come one after the other.
#include <algorithm>
#include <string>
#include <utility>

#include "models/graph/passes/fused.h"
#include "models/graph/plan/byte_layer.h"
#include "models/graph/plan/image_shape.h"
#include "models/graph/plan/makers.h"
#include "models/graph/plan/split.h"
#include "models/graph/plan/taps_first.h"

namespace millrace::models::graph {
namespace {

// Puts y where the result is: bytes or floats.
template <typename Args>
void SetOut(Args& args, const Slots& slots, Slot y, bool bytes, int64_t at) {
  if (bytes) {
    args.y = slots.data<uint8_t>(y) + at;
  } else {
    args.y_f32 = slots.data<float>(y) + at;
  }
}

class ByteConvStep : public Step {
 public:
  ByteConvStep(const Node& node, const LowerContext& context,
               const ImageShape& shape, int64_t groups,
               const Integers& integers, const PackedBytes& packed)
      : int8_(context.int8),
        num_members_(context.num_members),
        shape_(shape.Stacked()),
        text_(shape.Text()),
        groups_(groups),
        is_linear_(node.op == &fused::kByteLinear),
        x_(context.slot(node.inputs[0])),
        y_(context.slot(node.outputs[0])),
        packed_(packed),
        epilogue_(node, {context.graph, context.slot_of},
                  {packed.sums, integers.scales}, shape.outputs) {}

  int64_t scratch_bytes() const override {
    return num_members_ * MemberScratch();
  }

  Status Run(const Slots& slots, const Team& team) const override {
    const ImageShape& s = shape_;
    const int64_t n = s.outputs / groups_;
    const int64_t channels = s.channels / groups_;
    const Part part =
        SplitProduct(s.batch * s.out_pixels(),
                     (n + int8_.panel - 1) / int8_.panel, team, s.taps() > 1);
    Int8ConvArgs args{.x = {},
                      .window = s.window,
                      .out_width = s.out_width,
                      .n = n,
                      .panel_begin = part.panel_begin,
                      .panel_end = part.panel_end,
                      .ld_y = s.outputs};
    args.scratch = reinterpret_cast<uint8_t*>(slots.scratch) +
                   team.index * MemberScratch();
    const Int8Epilogue epilogue = epilogue_.At(
        slots, reinterpret_cast<float*>(args.scratch + GatherBytes()));
    const uint8_t x_zero = epilogue_.x_zero(slots);
    const int64_t pixels = s.out_pixels();
    ForEachItem(part.row_begin, part.row_end, pixels,
                [&](int64_t image, int64_t first, int64_t last) {
                  args.pixel_begin = first;
                  args.pixel_end = last;
                  for (int64_t group = 0; group < groups_; ++group) {
                    args.x = ByteImageAt(s, slots.data<uint8_t>(x_), image,
                                         group * channels, channels, x_zero);
                    args.w = packed_.data +
                             packed_.part_at[static_cast<size_t>(group)];
                    args.epilogue = Moved(epilogue, image * pixels, group * n);
                    SetOut(args, slots, y_, epilogue_.gives_bytes(),
                           image * pixels * s.outputs + group * n);
                    int8_.conv(args);
                  }
                });
    return OkStatus();
  }

  int64_t held_bytes() const override { return epilogue_.held_bytes(); }
  Factors factors() const override { return Factors::kInt8; }
  double macs() const override {
    return static_cast<double>(shape_.batch * shape_.out_pixels()) *
           static_cast<double>(shape_.outputs * K());
  }

  std::string Text() const override {
    if (is_linear_) {
      return "Int8 Linear " + std::to_string(shape_.width) + " x " +
             std::to_string(shape_.channels) + " -> " +
             std::to_string(shape_.outputs) + epilogue_.Text();
    }
    std::string text = "Int8 Conv " + text_;
    if (groups_ > 1) text += ", " + std::to_string(groups_) + " groups";
    return text + epilogue_.Text();
  }

 private:
  int64_t K() const { return shape_.taps() * shape_.channels / groups_; }
  int64_t GatherBytes() const {
    return (int8_.conv_scratch_bytes(shape_.window, shape_.out_width,
                                     shape_.channels / groups_) +
            63) /
           64 * 64;
  }
  int64_t MemberScratch() const {
    return GatherBytes() + (epilogue_.measured_floats() * 4 + 63) / 64 * 64;
  }

  const Int8Table& int8_;
  const int64_t num_members_;
  const ImageShape shape_;
  const std::string text_;  // of the shape
  const int64_t groups_;
  const bool is_linear_;
  const Slot x_;
  const Slot y_;
  const PackedBytes& packed_;
  const ByteEpilogue epilogue_;
};

class ByteDepthwiseStep : public Step {
 public:
  ByteDepthwiseStep(const Node& node, const LowerContext& context,
                    const ImageShape& shape, const Integers& integers,
                    const PackedBytes& packed)
      : kernel_(context.int8.depthwise),
        num_members_(context.num_members),
        shape_(shape),
        x_(context.slot(node.inputs[0])),
        y_(context.slot(node.outputs[0])),
        packed_(packed.data),
        epilogue_(node, {context.graph, context.slot_of},
                  {packed.sums, integers.scales}, shape.outputs),
        offset_(Ordered(epilogue_.offset())),
        scale_(Ordered(epilogue_.scale())),
        bias_(Ordered(epilogue_.bias())) {}

  int64_t scratch_bytes() const override {
    return num_members_ * MemberScratch();
  }

  Status Run(const Slots& slots, const Team& team) const override {
    const ImageShape& s = shape_;
    const Int8Epilogue epilogue = epilogue_.At(slots, nullptr);
    const int64_t each = s.out_height * kernel_.pieces(s.out_width, s.channels);
    const auto [begin, end] = team.Share(s.batch * each);
    ForEachItem(begin, end, each,
                [&](int64_t image, int64_t first, int64_t last) {
                  Int8DepthwiseArgs args{
                      .x = ByteImageAt(s, slots.data<uint8_t>(x_), image, 0,
                                       s.channels, epilogue_.x_zero(slots)),
                      .window = s.window,
                      .out_width = s.out_width,
                      .begin = first,
                      .end = last,
                      .w = packed_,
                      .offset = offset_.data(),
                      .scale = scale_.data(),
                      .bias = bias_.data(),
                      .epilogue = Moved(epilogue, image * s.out_pixels(), 0)};
                  args.scratch = reinterpret_cast<uint8_t*>(slots.scratch) +
                                 team.index * MemberScratch();
                  SetOut(args, slots, y_, epilogue_.gives_bytes(),
                         image * s.out_pixels() * s.outputs);
                  kernel_.run(args);
                });
    return OkStatus();
  }

  int64_t held_bytes() const override { return 2 * epilogue_.held_bytes(); }
  Factors factors() const override { return Factors::kInt8; }
  double macs() const override {
    return static_cast<double>(shape_.batch * shape_.out_pixels()) *
           static_cast<double>(shape_.outputs * shape_.taps());
  }

  std::string Text() const override {
    return "Int8 Depthwise " + shape_.Text() + epilogue_.Text();
  }

 private:
  int64_t MemberScratch() const {
    return (kernel_.scratch_bytes(shape_.window, shape_.out_width,
                                  shape_.channels) +
            63) /
           64 * 64;
  }

  // Values of channels in the order of the kernel; none are zeros.
  template <typename T>
  std::vector<T> Ordered(const std::vector<T>& of_channels) const {
    std::vector<T> ordered(
        static_cast<size_t>(kernel_.ordered(shape_.channels)));
    if (!of_channels.empty()) {
      kernel_.order(of_channels.data(), shape_.channels, ordered.data());
    }
    return ordered;
  }

  const Int8DepthwiseTable& kernel_;
  const int64_t num_members_;
  const ImageShape shape_;
  const Slot x_;
  const Slot y_;
  const int8_t* const packed_;
  const ByteEpilogue epilogue_;
  const std::vector<int32_t> offset_;
  const std::vector<float> scale_;
  const std::vector<float> bias_;
};

// The sizes of a linear layer as those of an image.
ImageShape LinearShape(const Node& node, const LowerContext& context) {
  ImageShape shape;
  const Shape& x = context.shape(node.inputs[0]);
  shape.channels = x.back();
  shape.outputs = context.shape(node.outputs[0]).back();
  shape.batch = 1;
  shape.height = 1;
  shape.out_height = 1;
  shape.width = x.num_elements() / std::max<int64_t>(shape.channels, 1);
  shape.out_width = shape.width;
  shape.ld_x = shape.channels;
  shape.ld_y = shape.outputs;
  return shape;
}

SignedWeight ProvenWeight(const Integers& integers, int outputs_axis) {
  auto weight = SignedWeightOf(integers, outputs_axis);
  CHECK(weight.has_value(), "the pass has proven the weights");
  return *std::move(weight);
}

StatusOr<std::unique_ptr<Step>> MakeDepthwise(const Node& node,
                                              const LowerContext& context,
                                              const ImageShape& shape,
                                              const Integers& integers) {
  const Int8DepthwiseTable& kernel = context.int8.depthwise;
  ASSIGN_OR_RETURN(
      const PackedBytes* packed,
      context.packed.GetBytes(
          integers.values,
          {PackedForm::Kind::kByteDepthwise, ByteSizes(shape.window, integers)},
          [&]() -> BytesToPack {
            SignedWeight weight = ProvenWeight(integers, 0);
            return {{0},
                    std::move(weight.sums),
                    kernel.packed_bytes(shape.window, shape.channels),
                    [&kernel, &shape,
                     values = std::move(weight.values)](int8_t* to) {
                      kernel.pack(values.data(), shape.window, shape.channels,
                                  to);
                      return OkStatus();
                    }};
          }));
  return std::unique_ptr<Step>(std::make_unique<ByteDepthwiseStep>(
      node, context, shape, integers, *packed));
}

BytesToPack WeightToPack(const Integers& integers, int outputs_axis,
                         const ImageShape& shape, int64_t groups,
                         const Int8Table& int8) {
  SignedWeight weight = ProvenWeight(integers, outputs_axis);
  const int64_t channels = shape.channels / groups;
  const int64_t n = weight.n / groups;
  const int64_t each = n * weight.k;  // of a group
  std::vector<int8_t> w =
      TapsFirst(weight.values.data(), weight.n, channels, shape.taps());
  BytesToPack todo{{}, std::move(weight.sums), 0, nullptr};
  for (int64_t group = 0; group < groups; ++group) {
    todo.part_at.push_back(todo.num_bytes);
    const int64_t bytes =
        int8.packed_bytes(w.data() + group * each, n, shape.window, channels);
    todo.num_bytes += (bytes + 63) / 64 * 64;
  }
  todo.pack = [&int8, &shape, n, each, channels, w = std::move(w),
               part_at = todo.part_at](int8_t* to) {
    for (size_t group = 0; group < part_at.size(); ++group) {
      int8.pack(w.data() + static_cast<int64_t>(group) * each, n, shape.window,
                channels, to + part_at[group]);
    }
    return OkStatus();
  };
  return todo;
}

}  // namespace

StatusOr<std::unique_ptr<Step>> MakeByteLayerStep(const Node& node,
                                                  const LowerContext& context) {
  const bool is_linear = node.op == &fused::kByteLinear;
  const ImageShape shape =
      is_linear ? LinearShape(node, context) : ImageShapeOf(node, context);
  const int64_t groups = GroupsOf(node.attrs);
  const bool weight_kn =
      is_linear && ParamsOf<LinearParams>(node.attrs).weight_kn;
  const Integers& integers = *context.graph.value(node.inputs[1]).integers;
  if (groups > 1 && groups == shape.channels && groups == shape.outputs) {
    return MakeDepthwise(node, context, shape, integers);
  }
  PackedForm form{weight_kn   ? PackedForm::Kind::kByteColumns
                  : is_linear ? PackedForm::Kind::kByteRows
                              : PackedForm::Kind::kByteConvolution,
                  ByteSizes(shape.window, integers)};
  form.sizes.push_back(groups);
  ASSIGN_OR_RETURN(const PackedBytes* packed,
                   context.packed.GetBytes(integers.values, form, [&] {
                     return WeightToPack(integers, weight_kn ? 1 : 0, shape,
                                         groups, context.int8);
                   }));
  return std::unique_ptr<Step>(std::make_unique<ByteConvStep>(
      node, context, shape, groups, integers, *packed));
}

}  // namespace millrace::models::graph
