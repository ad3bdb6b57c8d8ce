// Phi-3 and Phi-4 (Abdin et al. 2024) are llamas whose files hold q, k and v as
// one matrix, gate and up as another. Their long versions scale positions by
// LongRoPE; Phi-4-mini rotates three quarters of each head.
#include "models/llm/families.h"

namespace millrace::models {

Status DescribePhi3(const ModelSource& source, ModelConfig& config) {
  for (LayerSpec& layer : config.specs) {
    layer.fused_qkv = true;
    layer.fused_gate_up = true;
  }
  return SetWindows(
             source, [](int32_t) { return true; }, config)
      .status();
}

}  // namespace millrace::models
