// OLMo 2 (Team OLMo 2024): norms only behind attention and feed-forward, and
// over all heads of q and of k together. OLMoE (Muennighoff et al. 2024) has
// such norms of q and k in a llama with experts.
#include "models/llm/families.h"

namespace millrace::models {

Status DescribeOlmo2(const ModelSource& source, ModelConfig& config) {
  for (LayerSpec& layer : config.specs) {
    layer.pre_norms = false;
    layer.post_norms = true;
    layer.qk_norm = QkNorm::kWhole;
  }
  return SetWindows(
             source, [](int32_t) { return true; }, config)
      .status();
}

Status DescribeOlmoe(const ModelSource& source, ModelConfig& config) {
  if (source.FindKey("attention.clamp_kqv") != nullptr) {
    return Unimplemented(source.KeyName("attention.clamp_kqv") +
                         " is set, but clamping q, k and v is not supported");
  }
  for (LayerSpec& layer : config.specs) layer.qk_norm = QkNorm::kWhole;
  return SetExperts(source, false, config);
}

}  // namespace millrace::models
