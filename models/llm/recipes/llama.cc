// Llama (Touvron et al. 2023): pre-norm blocks of grouped-query attention with
// rotary positions and a SwiGLU feed-forward, RMS norms, no biases. Mistral is
// one whose layers all slide.
#include "models/llm/families.h"

namespace millrace::models {

Status DescribeLlama(const ModelSource& source, ModelConfig& config) {
  config.rope_interleaved = !source.as_trained();
  return SetWindows(
             source, [](int32_t) { return true; }, config)
      .status();
}

}  // namespace millrace::models
