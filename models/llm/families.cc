// The table of families, and what several recipes share.
#include "models/llm/families.h"

namespace millrace::models {
namespace {

constexpr Family kFamilies[] = {
    {"llama", &DescribeLlama},   {"qwen2", &DescribeQwen2},
    {"qwen3", &DescribeQwen3},   {"gemma2", &DescribeGemma2},
    {"gemma3", &DescribeGemma3},
};

}  // namespace

const Family* FindFamily(std::string_view architecture) {
  for (const Family& family : kFamilies) {
    if (family.architecture == architecture) return &family;
  }
  return nullptr;
}

std::string FamilyNames() {
  std::string names;
  for (const Family& family : kFamilies) {
    if (!names.empty()) names += ", ";
    names += family.architecture;
  }
  return names;
}

StatusOr<std::vector<bool>> SetWindows(const ModelSource& source,
                                       bool (*slides)(int32_t layer),
                                       ModelConfig& config) {
  constexpr const char* kPattern = "attention.sliding_window_pattern";
  std::vector<int64_t> flags;
  if (source.FindKey(kPattern) != nullptr) {
    ASSIGN_OR_RETURN(flags, source.Ints(kPattern));
    if (flags.size() != config.specs.size()) {
      return InvalidArgument(source.KeyName(kPattern) + " has " +
                             std::to_string(flags.size()) + " entries for " +
                             std::to_string(config.layers) + " layers");
    }
  }
  std::vector<bool> sliding;
  for (int32_t i = 0; i < config.layers; ++i) {
    const auto at = static_cast<size_t>(i);
    sliding.push_back(flags.empty() ? slides(i) : flags[at] != 0);
    if (sliding.back()) config.specs[at].window = config.sliding_window;
  }
  return sliding;
}

}  // namespace millrace::models
