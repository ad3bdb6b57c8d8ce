// Qwen2 (Yang et al. 2024) is a llama with biases on q, k and v. Qwen3 (Yang et
// al. 2025), dense, has RMS norms over each head of q and k instead.
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
  for (LayerSpec& layer : config.specs) layer.qk_norm = true;
  return SetWindows(source, &Slides, config).status();
}

}  // namespace millrace::models
