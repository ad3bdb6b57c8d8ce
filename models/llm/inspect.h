// What can be told of a language model without loading it.
#pragma once

#include <cstdint>

#include "config/base/status.h"
#include "config/schema.h"
#include "models/files/gguf.h"
#include "models/llm/config.h"
#include "models/llm/families.h"

namespace millrace::models {

// All that LoadLlm would need to know of a file.
struct LlmPlan {
  const Family* family;
  ModelConfig config;
  ModelTensors tensors;  // views into the file
};

// OK exactly when the file's architecture, shapes and types can be served; else
// why not. The tokenizer is not looked at (see ReadVocabulary).
StatusOr<LlmPlan> PlanLlm(const GgufFile& file);

// Bytes of KV cache for one token with "f16" or "f32" pages.
int64_t KvBytesPerToken(const ModelConfig& config, bool f32);

// "Q4_1": the type of most weights; "none" without any.
std::string MainWeightType(const GgufFile& file);
int64_t CountParameters(const GgufFile& file);

}  // namespace millrace::models
