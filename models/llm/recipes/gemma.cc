// Gemma 2 (Gemma Team 2024): norms before and after attention and feed-forward,
// GeGLU, embeddings scaled by sqrt(hidden), soft caps on scores and logits, and
// every other layer, from the first on, slides. Gemma 3 (Gemma Team 2025) has
// norms over heads of q and k instead of soft caps; five layers slide, with a
// RoPE of their own, then one sees all. Weights of norms are trained around 0
// and have 1 added.
#include <cmath>

#include "models/llm/families.h"

namespace millrace::models {
namespace {

// The value of a key that must be 0 or above.
StatusOr<float> AtLeastZero(const ModelSource& source, const char* key,
                            double otherwise) {
  ASSIGN_OR_RETURN(const double x, source.Float(key, otherwise));
  if (!(x >= 0) || !(x < 1e6)) {
    return InvalidArgument(source.KeyName(key) + " is " + std::to_string(x) +
                           "; expected a number from 0 to 1000000");
  }
  return static_cast<float>(x);
}

// `layers_of_27b`: the size whose scale is not by the head's size, which GGUF
// files do not say otherwise.
Status DescribeBoth(const ModelSource& source, int32_t layers_of_27b,
                    ModelConfig& config) {
  const double by_hidden = static_cast<double>(config.hidden) / config.heads;
  ASSIGN_OR_RETURN(
      const float scalar,
      AtLeastZero(
          source, "attention.query_pre_attn_scalar",
          config.layers == layers_of_27b ? by_hidden : config.head_dim));
  if (scalar == 0) {
    return InvalidArgument(source.KeyName("attention.query_pre_attn_scalar") +
                           " is 0; expected a number above 0");
  }
  config.attention_scale = 1.0f / std::sqrt(scalar);
  config.embedding_scale = std::sqrt(static_cast<float>(config.hidden));
  config.norm_offset = source.as_trained() ? 1.0f : 0.0f;
  for (LayerSpec& layer : config.specs) {
    layer.post_norms = true;
    layer.activation = Activation::kGelu;
  }
  return OkStatus();
}

}  // namespace

Status DescribeGemma2(const ModelSource& source, ModelConfig& config) {
  RETURN_IF_ERROR(DescribeBoth(source, 46, config));
  ASSIGN_OR_RETURN(const float softcap,
                   AtLeastZero(source, "attn_logit_softcapping", 50));
  ASSIGN_OR_RETURN(config.logit_softcap,
                   AtLeastZero(source, "final_logit_softcapping", 30));
  for (LayerSpec& layer : config.specs) layer.softcap = softcap;
  return SetWindows(
             source, [](int32_t layer) { return layer % 2 == 0; }, config)
      .status();
}

Status DescribeGemma3(const ModelSource& source, ModelConfig& config) {
  RETURN_IF_ERROR(DescribeBoth(source, 62, config));
  for (LayerSpec& layer : config.specs) layer.qk_norm = QkNorm::kHeads;
  ASSIGN_OR_RETURN(
      const std::vector<bool> sliding,
      SetWindows(
          source, [](int32_t layer) { return layer % 6 != 5; }, config));
  ASSIGN_OR_RETURN(const float local_base,
                   AboveZero(source, "rope.freq_base_swa", 10000));
  config.ropes.push_back({.freq_base = local_base, .file_factors = false});
  for (size_t i = 0; i < sliding.size(); ++i) {
    config.specs[i].rope = sliding[i] ? 1 : 0;
  }
  return OkStatus();
}

}  // namespace millrace::models
