// The epilogue of a fused layer, resolved as far as it is known before a run.
#pragma once

#include <string>

#include "models/cpu/graph_kernels.h"
#include "models/graph/ir.h"
#include "models/graph/plan/lower.h"
#include "models/graph/plan/step.h"

namespace millrace::models::graph {

class StepEpilogue {
 public:
  // Operands 2, 3 and 4 of the node: bias, residual, gate. `outputs`: values in
  // a row of the result, and of the last two unless they lie farther apart.
  StepEpilogue(const Node& node, const LowerContext& context, int64_t outputs);

  Epilogue At(const Slots& slots) const;
  std::string Text() const;

 private:
  Slot bias_ = kNoSlot;
  Slot residual_ = kNoSlot;
  Slot gate_ = kNoSlot;
  bool residual_is_bf16_ = false;
  Epilogue fixed_;
};

// Moves the epilogue to another row of the result and another first output.
Epilogue Moved(const Epilogue& epilogue, int64_t row, int64_t output);

// How a layer's text ends where it reads or writes bf16: ", of bf16, to bf16".
std::string Bf16Text(bool of, bool to);

}  // namespace millrace::models::graph
