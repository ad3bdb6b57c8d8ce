// DynamicQuantizeLinear: every member looks at all values for their range,
// which is cheaper than meeting, and makes bytes of its share.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "models/graph/plan/makers.h"

namespace millrace::models::graph {
namespace {

constexpr int64_t kBlock = 1024;

class MeasureStep : public Step {
 public:
  MeasureStep(const Node& node, const LowerContext& context)
      : dense_(context.dense),
        int8_(context.int8),
        n_(context.shape(node.inputs[0]).num_elements()),
        x_(context.slot(node.inputs[0])),
        y_(context.slot(node.outputs[0])),
        scale_(context.slot(node.outputs[1])),
        zero_(context.slot(node.outputs[2])) {}

  Status Run(const Slots& slots, const Team& team) const override {
    const auto* x = slots.data<float>(x_);
    const float low = std::min(0.0f, Extreme(Binary::kMin, x));
    const float high = std::max(0.0f, Extreme(Binary::kMax, x));
    const float scale = (high == low ? 1.0f : high - low) / 255.0f;
    const auto zero = static_cast<int32_t>(
        std::nearbyint(std::clamp(0.0f - low / scale, 0.0f, 255.0f)));
    if (team.index == 0) {
      *slots.data<float>(scale_) = scale;
      *slots.data<uint8_t>(zero_) = static_cast<uint8_t>(zero);
    }
    const auto [begin, end] = team.Share(n_, 64);
    int8_.quantise(x + begin, end - begin, 1.0f / scale, zero,
                   slots.data<uint8_t>(y_) + begin);
    return OkStatus();
  }

  std::string Text() const override {
    return "Quantize " + std::to_string(n_) + " measured";
  }

 private:
  // Block by block into one block, and then of that.
  float Extreme(Binary f, const float* x) const {
    std::array<float, kBlock> best;
    best.fill(0);
    for (int64_t i = 0; i < n_; i += kBlock) {
      dense_.binary(f, x + i, 1, best.data(), 1, std::min(kBlock, n_ - i),
                    best.data());
    }
    return f == Binary::kMin ? *std::min_element(best.begin(), best.end())
                             : *std::max_element(best.begin(), best.end());
  }

  const DenseTable& dense_;
  const Int8Table& int8_;
  const int64_t n_;
  const Slot x_;
  const Slot y_;
  const Slot scale_;
  const Slot zero_;
};

}  // namespace

StatusOr<std::unique_ptr<Step>> MakeMeasureStep(const Node& node,
                                                const LowerContext& context) {
  if (node.outputs.size() != 3 ||
      std::count(node.outputs.begin(), node.outputs.end(), kNoValue) != 0) {
    return std::unique_ptr<Step>();
  }
  return std::unique_ptr<Step>(std::make_unique<MeasureStep>(node, context));
}

}  // namespace millrace::models::graph
