// SmolLM3 (Hugging Face 2025) is a llama whose every fourth layer has no
// positions at all (NoPE, Kazemnejad et al. 2023).
#include "models/llm/families.h"

namespace millrace::models {

Status DescribeSmolLm3(const ModelSource& source, ModelConfig& config) {
  config.qk_rows_moved = !source.as_trained();
  config.rope_interleaved = config.qk_rows_moved;
  RETURN_IF_ERROR(SetRotated(source, config));
  return SetWindows(
             source, [](int32_t) { return true; }, config)
      .status();
}

}  // namespace millrace::models
