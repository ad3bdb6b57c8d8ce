// GPT-2 (Radford et al. 2019): LayerNorms, biases everywhere, GELU between two
// matrices, and a learned row for each position instead of rotation.
#include "models/llm/families.h"

namespace millrace::models {

Status DescribeGpt2(const ModelSource& /*source*/, ModelConfig& config) {
  config.layer_norms = true;
  config.learned_positions = true;
  for (LayerSpec& layer : config.specs) {
    layer.rope = kNoRope;
    layer.fused_qkv = true;
    layer.qkv_bias = true;
    layer.output_bias = true;
    layer.gated = false;
    layer.ffn_bias = true;
    layer.activation = Activation::kGelu;
  }
  return OkStatus();
}

}  // namespace millrace::models
