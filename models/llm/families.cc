// The table of families, and what several recipes share.
#include "models/llm/families.h"

namespace millrace::models {
namespace {

constexpr Family kFamilies[] = {
    {"llama", &DescribeLlama},       {"qwen2", &DescribeQwen2},
    {"qwen3", &DescribeQwen3},       {"qwen2moe", &DescribeQwen2Moe},
    {"qwen3moe", &DescribeQwen3Moe}, {"gemma2", &DescribeGemma2},
    {"gemma3", &DescribeGemma3},     {"gpt2", &DescribeGpt2},
    {"granite", &DescribeGranite},   {"olmo2", &DescribeOlmo2},
    {"olmoe", &DescribeOlmoe},       {"phi3", &DescribePhi3},
    {"smollm3", &DescribeSmolLm3},   {"starcoder2", &DescribeStarcoder2},
    {"gptneox", &DescribeGptNeox},   {"gpt-oss", &DescribeGptOss},
    {"llama4", &DescribeLlama4},
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

StatusOr<float> AboveZero(const ModelSource& source, const char* key,
                          double otherwise) {
  ASSIGN_OR_RETURN(const double x, source.Float(key, otherwise));
  if (!(x > 0) || !(x < 1e30)) {
    return InvalidArgument(source.KeyName(key) + " is " + std::to_string(x) +
                           "; expected a number above 0");
  }
  return static_cast<float>(x);
}

Status SetExperts(const ModelSource& source, bool normalise,
                  ModelConfig& config) {
  ExpertConfig& experts = config.experts;
  const struct {
    const char* key;
    int64_t otherwise;
    int64_t least;
    int64_t most;
    int32_t& value;
  } counts[] = {
      {"expert_count", 0, 1, 4096, experts.count},
      {"expert_used_count", 0, 1, 64, experts.used},
      {"expert_feed_forward_length", config.ffn, 1, 1 << 20, experts.ffn},
      {"expert_shared_feed_forward_length", 0, 0, 1 << 20, experts.shared_ffn},
  };
  for (const auto& count : counts) {
    ASSIGN_OR_RETURN(const int64_t n, source.Int(count.key, count.otherwise));
    if (n < count.least || n > count.most) {
      return InvalidArgument(source.KeyName(count.key) + " is " +
                             std::to_string(n) + ", " +
                             std::to_string(count.least) + " to " +
                             std::to_string(count.most) + " is allowed");
    }
    count.value = static_cast<int32_t>(n);
  }
  if (experts.used > experts.count) {
    return InvalidArgument(source.KeyName("expert_used_count") + " is " +
                           std::to_string(experts.used) + " of " +
                           std::to_string(experts.count) + " experts");
  }
  ASSIGN_OR_RETURN(experts.normalise,
                   source.Bool("expert_weights_norm", normalise));
  for (size_t i = 0; i < config.specs.size(); ++i) {
    config.specs[i].experts =
        source.FindTensor("blk." + std::to_string(i) +
                          ".ffn_gate_inp.weight") != nullptr;
  }
  return OkStatus();
}

Status SetRotated(const ModelSource& source, ModelConfig& config) {
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
  return OkStatus();
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
