// Whole arrays: QuantizeLinear and DequantizeLinear by one scale, and tables of
// bytes.
#include <optional>
#include <string>

#include "models/graph/passes/bytes.h"
#include "models/graph/plan/makers.h"

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

  Status Run(const Slots& slots, const Team& team) override {
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

  Status Run(const Slots& slots, const Team& team) override {
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

}  // namespace

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
