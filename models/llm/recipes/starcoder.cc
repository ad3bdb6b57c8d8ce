// StarCoder2 (Lozhkov et al. 2024): LayerNorms, biases everywhere, and a
// feed-forward of two matrices with GELU between; rotary positions and grouped
// queries as llama has them.
#include "models/llm/families.h"

namespace millrace::models {

Status DescribeStarcoder2(const ModelSource& source, ModelConfig& config) {
  config.layer_norms = true;
  for (LayerSpec& layer : config.specs) {
    layer.qkv_bias = true;
    layer.output_bias = true;
    layer.gated = false;
    layer.ffn_bias = true;
    layer.activation = Activation::kGelu;
  }
  return SetWindows(
             source, [](int32_t) { return true; }, config)
      .status();
}

}  // namespace millrace::models
