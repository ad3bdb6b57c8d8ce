// Qwen2 (Yang et al. 2024) is a llama with biases on q, k and v. Qwen3 (Yang et
// al. 2025) has RMS norms over each head of q and k instead. Their mixtures of
// experts differ in that; Qwen2's have one expert more that every token uses,
// by a gate of its own.
#include "models/llm/families.h"

namespace millrace::models {
namespace {

bool Slides(int32_t /*layer*/) { return true; }

}  // namespace

Status DescribeQwen2(const ModelSource& source, ModelConfig& config) {
  for (LayerSpec& layer : config.specs) layer.qkv_bias = true;
  return SetWindows(source, &Slides, config).status();
}

Status DescribeQwen3(const ModelSource& source, ModelConfig& config) {
  for (LayerSpec& layer : config.specs) layer.qk_norm = QkNorm::kHeads;
  return SetWindows(source, &Slides, config).status();
}

Status DescribeQwen2Moe(const ModelSource& source, ModelConfig& config) {
  RETURN_IF_ERROR(SetExperts(source, false, config));
  if (config.experts.shared_ffn == 0) {
    return InvalidArgument(source.KeyName("expert_shared_feed_forward_length") +
                           " is 0 or absent; expected a size above 0");
  }
  return DescribeQwen2(source, config);
}

Status DescribeQwen3Moe(const ModelSource& source, ModelConfig& config) {
  RETURN_IF_ERROR(SetExperts(source, true, config));
  return DescribeQwen3(source, config);
}

}  // namespace millrace::models
