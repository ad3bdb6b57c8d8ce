#include "models/graph/cuda/layer_parts.h"

#include <algorithm>
#include <memory>

#include "models/graph/activation.h"
#include "models/graph/fused_params.h"
#include "models/graph/passes/fused.h"

namespace millrace::models::graph {
namespace {

// The kernels' functions are numbered as the graph's.
static_assert(static_cast<int>(cuda::Function::kRelu) ==
              static_cast<int>(Unary::kRelu));
static_assert(static_cast<int>(cuda::Function::kGeluErf) ==
              static_cast<int>(Unary::kGeluErf));
static_assert(static_cast<int>(cuda::Function::kSqrt) ==
              static_cast<int>(Unary::kSqrt));
static_assert(static_cast<int>(cuda::Function::kCos) ==
              static_cast<int>(Unary::kCos));

}  // namespace

LayerEnd::LayerEnd(const Node& node, const DeviceLowering& lowering) {
  const auto slot = [&](size_t i) {
    return i < node.inputs.size() ? lowering.slot(node.inputs[i]) : kNoSlot;
  };
  const FusedEpilogue& end = LayerParamsOf(node.attrs).epilogue;
  fixed.f = static_cast<cuda::Function>(end.activation.f);
  fixed.a = end.activation.a;
  fixed.b = end.activation.b;
  fixed.residual_first = end.residual_first;
  bias = slot(fused::kBias);
  residual = slot(fused::kResidual);
  gate = slot(fused::kGate);
}

cuda::GraphEpilogue LayerEnd::At(const DeviceSlots& slots) const {
  cuda::GraphEpilogue end = fixed;
  end.bias = slots.floats_in(bias);
  end.residual = slots.in(residual);
  end.gate = slots.in(gate);
  return end;
}

std::string LayerEnd::Text() const {
  std::string text = bias != kNoSlot ? " +bias" : "";
  if (residual != kNoSlot) text += " +residual";
  const auto f = static_cast<Unary>(fixed.f);
  if (f != Unary::kNone) text += " " + std::string(UnaryName(f));
  return text + (gate != kNoSlot ? " *gate" : "");
}

bool AllFloats(const Node& node, const DeviceLowering& lowering) {
  return std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) {
    return id == kNoValue || lowering.IsFloat(id);
  });
}

PackedConstant FactorsOf(const Graph& graph, ValueId value,
                         cuda::GraphPrecision precision,
                         const WeightOrder& order) {
  const std::shared_ptr<const Tensor> constant = graph.value(value).constant;
  return {.value = value,
          .of = constant,
          .form = {static_cast<int64_t>(precision), order.outputs, order.groups,
                   order.taps, order.channels, order.output_stride,
                   order.tap_stride, order.channel_stride, order.group_stride},
          .pack = [=] {
            const Tensor values = constant->Aligned();
            return PackFactors(precision, order, values.data<float>());
          }};
}

std::string PrecisionText(cuda::GraphPrecision precision) {
  switch (precision) {
    case cuda::GraphPrecision::kF32:
      break;
    case cuda::GraphPrecision::kTf32:
      return " tf32";
    case cuda::GraphPrecision::kF16:
      return " f16";
    case cuda::GraphPrecision::kBf16:
      return " bf16";
  }
  return "";
}

std::string PiecesText(int64_t pieces, int64_t partial_sums) {
  if (pieces == 1) return "";
  return ", " + std::to_string(pieces) + " pieces" +
         (partial_sums > 0 ? " in blocks of their own" : "");
}

}  // namespace millrace::models::graph
