#include "models/llm/decoder.h"

namespace millrace::models {

void RecordDecoder(const ModelConfig& config, const ModelWeights& weights,
                   Backend& backend) {
  backend.Embed(*weights.token_embd, {.scale = config.embedding_scale,
                                      .positions = weights.position_embd});
  for (int32_t i = 0; i < config.layers; ++i) {
    const LayerSpec& spec = config.specs[static_cast<size_t>(i)];
    const LayerWeights& layer = weights.layers[static_cast<size_t>(i)];
    backend.NormLinear(layer.attn_norm, *layer.attn_qkv);
    backend.RopeWriteKv(
        i, {.rope = spec.rope,
            .q_norm = layer.attn_q_norm,
            .k_norm = layer.attn_k_norm,
            .q_scale = config.attention_scale,
            .q_temperature =
                spec.q_tempered ? config.q_temperature : QTemperature{}});
    backend.Attend(i, {.window = spec.window,
                       .chunked = spec.chunked,
                       .softcap = spec.softcap,
                       .sinks = layer.attn_sinks});
    if (i + 1 == config.layers) backend.KeepSampleRows();
    backend.LinearResidual(Branch::kAttention, *layer.attn_output,
                           {.post_norm = layer.post_attention_norm,
                            .scale = config.residual_scale,
                            .waits = spec.parallel});
    if (spec.experts) {
      backend.NormExperts(
          layer.ffn_norm,
          {.router = layer.router,
           .experts = layer.experts,
           .used = config.experts.used,
           .shared = config.experts.shared_ffn > 0,
           .shared_gate = config.experts.shared_gate,
           .normalise = config.experts.normalise,
           .sigmoid_inputs = config.experts.sigmoid_inputs,
           .activation = spec.activation},
          {.post_norm = layer.post_ffw_norm, .scale = config.residual_scale});
      continue;
    }
    backend.NormGateUpAct(layer.ffn_norm, *layer.ffn_gate_up, spec.activation);
    backend.LinearResidual(
        Branch::kFfn, *layer.ffn_down,
        {.post_norm = layer.post_ffw_norm, .scale = config.residual_scale});
  }
  if (backend.shape().hidden_rows) {
    backend.HiddenRows(weights.output_norm);
    return;
  }
  backend.Head(weights.output_norm, *weights.output,
               {.scale = config.logit_scale, .softcap = config.logit_softcap});
}

}  // namespace millrace::models
