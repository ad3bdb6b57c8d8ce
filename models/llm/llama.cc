// Llama (Touvron et al. 2023): pre-norm blocks of grouped-query attention with
// rotary positions and a SwiGLU feed-forward, RMS norms, no biases.
#include "models/llm/families.h"

namespace millrace::models {

void LlamaRecipe(const ModelConfig& config, const ModelWeights& weights,
                 Backend& backend) {
  backend.Embed(*weights.embedding);
  for (int32_t i = 0; i < config.layers; ++i) {
    const LayerWeights& layer = weights.layers[i];
    backend.NormLinear(layer.attn_norm, *layer.qkv);
    backend.RopeWriteKv(i);
    backend.Attend(i, {.window = config.sliding_window});
    if (i + 1 == config.layers) backend.KeepSampleRows();
    backend.LinearResidual(Activation::kAttention, *layer.attn_output);
    backend.NormGateUpAct(layer.ffn_norm, *layer.gate_up);
    backend.LinearResidual(Activation::kFfn, *layer.down);
  }
  backend.Head(weights.output_norm, *weights.output);
}

}  // namespace millrace::models
