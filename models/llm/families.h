// Which architectures are served: one table, architecture name → family.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"
#include "models/llm/config.h"
#include "models/llm/source.h"

namespace millrace::models {

struct Family {
  std::string_view architecture;  // general.architecture of a GGUF file
  // The recipe: completes a config whose shared sizes have been read, with one
  // default LayerSpec for each layer. INVALID_ARGUMENT or UNIMPLEMENTED names
  // the key.
  Status (*describe)(const ModelSource& source, ModelConfig& config);
};

// Null: no such family.
const Family* FindFamily(std::string_view architecture);
// "llama, qwen2"
std::string FamilyNames();

// ---- recipes, in models/llm/recipes ----
Status DescribeLlama(const ModelSource& source, ModelConfig& config);
Status DescribeQwen2(const ModelSource& source, ModelConfig& config);
Status DescribeQwen3(const ModelSource& source, ModelConfig& config);
Status DescribeQwen2Moe(const ModelSource& source, ModelConfig& config);
Status DescribeQwen3Moe(const ModelSource& source, ModelConfig& config);
Status DescribeGemma2(const ModelSource& source, ModelConfig& config);
Status DescribeGemma3(const ModelSource& source, ModelConfig& config);
Status DescribeGpt2(const ModelSource& source, ModelConfig& config);
Status DescribeGptNeox(const ModelSource& source, ModelConfig& config);
Status DescribeGptOss(const ModelSource& source, ModelConfig& config);
Status DescribeGranite(const ModelSource& source, ModelConfig& config);
Status DescribeLlama4(const ModelSource& source, ModelConfig& config);
Status DescribeOlmo2(const ModelSource& source, ModelConfig& config);
Status DescribeOlmoe(const ModelSource& source, ModelConfig& config);
Status DescribePhi3(const ModelSource& source, ModelConfig& config);
Status DescribeSmolLm3(const ModelSource& source, ModelConfig& config);
Status DescribeStarcoder2(const ModelSource& source, ModelConfig& config);

// ---- for recipes ----
// The value of a key that must be above 0.
StatusOr<float> AboveZero(const ModelSource& source, const char* key,
                          double otherwise);
// Reads the experts of a model and finds the layers that have them: those with
// a router. `normalise` is what the family does unless the file says otherwise.
Status SetExperts(const ModelSource& source, bool normalise,
                  ModelConfig& config);
// Takes RoPE from the layers that are not rotated: those that the file's
// rope.layers has a 0 for (one flag for each layer), else every fourth.
Status SetRotated(const ModelSource& source, ModelConfig& config);
// Gives the layers that slide the model's window: those that the file's
// attention.sliding_window_pattern names (one flag for each layer), else those
// of which `slides` is true. Returns which ones they are.
StatusOr<std::vector<bool>> SetWindows(const ModelSource& source,
                                       bool (*slides)(int32_t layer),
                                       ModelConfig& config);

}  // namespace millrace::models
