#include "models/graph/plan/epilogue.h"

#include "models/graph/passes/activations.h"

namespace millrace::models::graph {

StepEpilogue::StepEpilogue(const Node& node, const LowerContext& context,
                           int64_t outputs) {
  const auto slot = [&](size_t i) {
    return i < node.inputs.size() ? context.slot(node.inputs[i]) : kNoSlot;
  };
  bias_ = slot(2);
  residual_ = slot(3);
  gate_ = slot(4);
  fixed_.f = static_cast<Unary>(node.attrs.Int("activation", 0));
  fixed_.a = static_cast<float>(node.attrs.Float("alpha", 0));
  fixed_.b = static_cast<float>(node.attrs.Float("beta", 0));
  fixed_.residual_first = node.attrs.Int("residual_first", 0) != 0;
  fixed_.ld_residual = outputs;
  fixed_.ld_gate = outputs;
}

Epilogue StepEpilogue::At(const Slots& slots) const {
  Epilogue epilogue = fixed_;
  if (bias_ != kNoSlot) epilogue.bias = slots.data<float>(bias_);
  if (residual_ != kNoSlot) epilogue.residual = slots.data<float>(residual_);
  if (gate_ != kNoSlot) epilogue.gate = slots.data<float>(gate_);
  return epilogue;
}

std::string StepEpilogue::Text() const {
  std::string text;
  if (bias_ != kNoSlot) text += " +bias";
  if (residual_ != kNoSlot && fixed_.residual_first) text += " +residual";
  if (fixed_.f != Unary::kNone) {
    text += " " + std::string(UnaryName(fixed_.f));
  }
  if (gate_ != kNoSlot) text += " *gate";
  if (residual_ != kNoSlot && !fixed_.residual_first) text += " +residual";
  return text;
}

std::string Bf16Text(bool of, bool to) {
  return std::string(of ? ", of bf16" : "") + (to ? ", to bf16" : "");
}

}  // namespace millrace::models::graph
