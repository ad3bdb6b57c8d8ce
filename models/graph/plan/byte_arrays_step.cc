// Whole arrays: QuantizeLinear and DequantizeLinear by one scale, tables of
// bytes, and images of few planes that become channels last.
#include <optional>
#include <string>

#include "models/graph/passes/bytes.h"
#include "models/graph/plan/makers.h"
#include "models/graph/plan/split.h"

namespace millrace::models::graph {
namespace {

class QuantizeStep : public Step {
 public:
  QuantizeStep(const Node& node, const LowerContext& context, ByteScale scale)
      : int8_(context.int8),
        quantises_(node.Is("QuantizeLinear")),
        scale_(scale),
        n_(context.shape(node.inputs[0]).num_elements()),
        x_(context.slot(node.inputs[0])),
        y_(context.slot(node.outputs[0])) {}

  Status Run(const Slots& slots, const Team& team) const override {
    const auto [begin, end] = team.Share(n_, 64);
    if (quantises_) {
      int8_.quantise(slots.data<float>(x_) + begin, end - begin,
                     1.0f / scale_.scale, scale_.zero,
                     slots.data<uint8_t>(y_) + begin);
    } else {
      int8_.dequantise(slots.data<uint8_t>(x_) + begin, end - begin,
                       scale_.scale, scale_.zero,
                       slots.data<float>(y_) + begin);
    }
    return OkStatus();
  }

  std::string Text() const override {
    return (quantises_ ? "Quantize " : "Dequantize ") + std::to_string(n_);
  }

 private:
  const Int8Table& int8_;
  const bool quantises_;
  const ByteScale scale_;
  const int64_t n_;
  const Slot x_;
  const Slot y_;
};

class LookupStep : public Step {
 public:
  LookupStep(const Node& node, const LowerContext& context)
      : int8_(context.int8),
        table_(context.constant(node.inputs[1])->data<uint8_t>()),
        n_(context.shape(node.inputs[0]).num_elements()),
        x_(context.slot(node.inputs[0])),
        y_(context.slot(node.outputs[0])) {}

  Status Run(const Slots& slots, const Team& team) const override {
    const auto [begin, end] = team.Share(n_, 64);
    int8_.lookup(table_, slots.data<uint8_t>(x_) + begin, end - begin,
                 slots.data<uint8_t>(y_) + begin);
    return OkStatus();
  }

  std::string Text() const override { return "Lookup " + std::to_string(n_); }

 private:
  const Int8Table& int8_;
  const uint8_t* const table_;
  const int64_t n_;
  const Slot x_;
  const Slot y_;
};

// [images][planes][pixels] to [images][pixels][planes].
class ByteTransposeStep : public Step {
 public:
  ByteTransposeStep(const Node& node, const LowerContext& context,
                    int64_t images, int64_t planes, int64_t pixels)
      : images_(images),
        planes_(planes),
        pixels_(pixels),
        x_(context.slot(node.inputs[0])),
        y_(context.slot(node.outputs[0])) {}

  static constexpr int64_t kMostPlanes = 4;

  Status Run(const Slots& slots, const Team& team) const override {
    const auto [begin, end] = team.Share(images_ * pixels_, 64);
    ForEachItem(begin, end, pixels_,
                [&](int64_t image, int64_t first, int64_t last) {
                  const int64_t at = image * planes_ * pixels_;
                  const uint8_t* x = slots.data<uint8_t>(x_) + at;
                  uint8_t* y = slots.data<uint8_t>(y_) + at;
                  switch (planes_) {
                    case 1:
                      return Join<1>(x, first, last, y);
                    case 2:
                      return Join<2>(x, first, last, y);
                    case 3:
                      return Join<3>(x, first, last, y);
                    default:
                      return Join<4>(x, first, last, y);
                  }
                });
    return OkStatus();
  }

  std::string Text() const override {
    return "Channels last " + std::to_string(images_) + " x " +
           std::to_string(planes_) + " x " + std::to_string(pixels_);
  }

 private:
  template <int kPlanes>
  void Join(const uint8_t* x, int64_t first, int64_t last, uint8_t* y) const {
    const int64_t pixels = pixels_;
    for (int64_t i = first; i < last; ++i) {
      for (int p = 0; p < kPlanes; ++p) y[i * kPlanes + p] = x[p * pixels + i];
    }
  }

  const int64_t images_;
  const int64_t planes_;
  const int64_t pixels_;
  const Slot x_;
  const Slot y_;
};

}  // namespace

StatusOr<std::unique_ptr<Step>> MakeByteTransposeStep(
    const Node& node, const LowerContext& context) {
  const ValueType& x = context.type(node.inputs[0]);
  const int rank = x.shape.rank();
  const std::vector<int64_t>& perm = node.attrs.Ints("perm");
  if (x.dtype != DType::kU8 || rank < 3 ||
      static_cast<int>(perm.size()) != rank || perm[0] != 0 ||
      perm[static_cast<size_t>(rank - 1)] != 1 ||
      x.shape[1] > ByteTransposeStep::kMostPlanes ||
      x.shape.num_elements() == 0) {
    return std::unique_ptr<Step>();
  }
  for (int i = 1; i + 1 < rank; ++i) {
    if (perm[static_cast<size_t>(i)] != i + 1) return std::unique_ptr<Step>();
  }
  return std::unique_ptr<Step>(std::make_unique<ByteTransposeStep>(
      node, context, x.shape[0], x.shape[1], x.shape.Product(2, rank)));
}

StatusOr<std::unique_ptr<Step>> MakeQuantizeStep(const Node& node,
                                                 const LowerContext& context) {
  const std::optional<ByteScale> scale = ByteScaleOf(context.graph, node);
  if (!scale) return std::unique_ptr<Step>();
  return std::unique_ptr<Step>(
      std::make_unique<QuantizeStep>(node, context, *scale));
}

StatusOr<std::unique_ptr<Step>> MakeLookupStep(const Node& node,
                                               const LowerContext& context) {
  return std::unique_ptr<Step>(std::make_unique<LookupStep>(node, context));
}

}  // namespace millrace::models::graph
