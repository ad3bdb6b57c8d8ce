// SmolLM3 (Hugging Face 2025) is a llama whose every fourth layer has no
// positions at all (NoPE, Kazemnejad et al. 2023).
#include "models/llm/families.h"

namespace millrace::models {

Status DescribeSmolLm3(const ModelSource& source, ModelConfig& config) {
  config.rope_interleaved = !source.as_trained();
  std::vector<int64_t> rotated;
  if (source.FindKey("rope.layers") != nullptr) {
    ASSIGN_OR_RETURN(rotated, source.Ints("rope.layers"));
    if (rotated.size() != config.specs.size()) {
      return InvalidArgument(source.KeyName("rope.layers") + " has " +
                             std::to_string(rotated.size()) + " entries for " +
                             std::to_string(config.layers) + " layers");
    }
  }
  for (size_t i = 0; i < config.specs.size(); ++i) {
    const bool rotates = rotated.empty() ? i % 4 != 3 : rotated[i] != 0;
    if (!rotates) config.specs[i].rope = kNoRope;
  }
  return SetWindows(
             source, [](int32_t) { return true; }, config)
      .status();
}

}  // namespace millrace::models
