// Granite 3 (IBM 2024) is a llama with four multipliers: of embeddings, scores,
// what a branch adds, and (a divisor) logits.
#include "models/llm/families.h"

namespace millrace::models {

Status DescribeGranite(const ModelSource& source, ModelConfig& config) {
  config.qk_rows_moved = !source.as_trained();
  config.rope_interleaved = config.qk_rows_moved;
  float divisor = 1;
  const std::pair<const char*, float*> scales[] = {
      {"embedding_scale", &config.embedding_scale},
      {"residual_scale", &config.residual_scale},
      {"attention.scale", &config.attention_scale},
      {"logit_scale", &divisor}};
  for (const auto& [key, scale] : scales) {
    ASSIGN_OR_RETURN(*scale, AboveZero(source, key, *scale));
  }
  config.logit_scale = 1.0f / divisor;
  return OkStatus();
}

}  // namespace millrace::models
