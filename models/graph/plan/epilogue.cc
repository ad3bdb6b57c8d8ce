#include "models/graph/plan/epilogue.h"

#include "models/graph/activation.h"
#include "models/graph/passes/fused.h"

namespace millrace::models::graph {

StepEpilogue::StepEpilogue(const Node& node, const LowerContext& context,
                           int64_t outputs) {
  const auto slot = [&](size_t i) {
    return i < node.inputs.size() ? context.slot(node.inputs[i]) : kNoSlot;
  };
  bias_ = slot(fused::kBias);
  residual_ = slot(fused::kResidual);
  gate_ = slot(fused::kGate);
  residual_is_bf16_ =
      residual_ != kNoSlot && context.is_bf16(node.inputs[fused::kResidual]);
  const FusedEpilogue& epilogue = LayerParamsOf(node.attrs).epilogue;
  fixed_.f = epilogue.activation.f;
  fixed_.a = epilogue.activation.a;
  fixed_.b = epilogue.activation.b;
  fixed_.residual_first = epilogue.residual_first;
  const auto distance = [&](size_t i) {
    const bool given = i < node.inputs.size() && node.inputs[i] != kNoValue;
    return given && context.place(node.inputs[i]).storage != kNoValue
               ? context.distance(node.inputs[i])
               : outputs;
  };
  fixed_.ld_residual = distance(fused::kResidual);
  fixed_.ld_gate = distance(fused::kGate);
}

Epilogue StepEpilogue::At(const Slots& slots) const {
  Epilogue epilogue = fixed_;
  if (bias_ != kNoSlot) epilogue.bias = slots.data<float>(bias_);
  if (residual_ != kNoSlot && residual_is_bf16_) {
    epilogue.residual_bf16 = slots.data<Bf16>(residual_);
  } else if (residual_ != kNoSlot) {
    epilogue.residual = slots.data<float>(residual_);
  }
  if (gate_ != kNoSlot) epilogue.gate = slots.data<float>(gate_);
  return epilogue;
}

Epilogue Moved(const Epilogue& epilogue, int64_t row, int64_t output) {
  Epilogue moved = epilogue;
  if (moved.bias != nullptr) moved.bias += output;
  if (moved.residual != nullptr) {
    moved.residual += row * moved.ld_residual + output;
  }
  if (moved.residual_bf16 != nullptr) {
    moved.residual_bf16 += row * moved.ld_residual + output;
  }
  if (moved.gate != nullptr) moved.gate += row * moved.ld_gate + output;
  return moved;
}

std::string StepEpilogue::Text() const {
  std::string text;
  if (bias_ != kNoSlot) text += " +bias";
  const char* residual =
      residual_is_bf16_ ? " +residual of bf16" : " +residual";
  if (residual_ != kNoSlot && fixed_.residual_first) text += residual;
  if (fixed_.f != Unary::kNone) {
    text += " " + std::string(UnaryName(fixed_.f));
  }
  if (gate_ != kNoSlot) text += " *gate";
  if (residual_ != kNoSlot && !fixed_.residual_first) text += residual;
  return text;
}

std::string Bf16Text(bool of, bool to) {
  return std::string(of ? ", of bf16" : "") + (to ? ", to bf16" : "");
}

}  // namespace millrace::models::graph
