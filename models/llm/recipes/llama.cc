// Llama (Touvron et al. 2023): pre-norm blocks of grouped-query attention with
// rotary positions and a SwiGLU feed-forward, RMS norms, no biases. Mistral is
// one whose layers all slide, Mixtral (Jiang et al. 2024) one whose
// feed-forwards are mixtures of experts.
#include "models/llm/families.h"

namespace millrace::models {

Status DescribeLlama(const ModelSource& source, ModelConfig& config) {
  config.qk_rows_moved = !source.as_trained();
  config.rope_interleaved = config.qk_rows_moved;
  ASSIGN_OR_RETURN(const int64_t experts, source.Int("expert_count", 0));
  if (experts > 0) RETURN_IF_ERROR(SetExperts(source, true, config));
  return SetWindows(
             source, [](int32_t) { return true; }, config)
      .status();
}

}  // namespace millrace::models
