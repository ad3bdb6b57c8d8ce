// What can be said of a language model without loading it.
#pragma once

#include <cstdint>
#include <string>

#include "config/base/status.h"
#include "models/llm/config.h"
#include "models/llm/model_tensors.h"
#include "models/llm/source.h"

namespace millrace::models {

// All that LoadLlm would need to know of a model.
struct LlmPlan {
  ModelConfig config;
  ModelTensors tensors;  // views into the source
};

// OK exactly when the model's architecture, shapes and types can be served;
// else why not. The tokenizer is not looked at.
StatusOr<LlmPlan> PlanLlm(const ModelSource& source);

// The source's vocabulary, which must not be larger than the embedding.
StatusOr<Vocabulary> VocabularyFor(const ModelSource& source,
                                   const ModelConfig& config);

// Bytes of KV cache for one token on the device that is chosen by default.
// `kv_cache_dtype` is as in the settings; one that exists.
int64_t KvBytesPerToken(const ModelConfig& config,
                        const std::string& kv_cache_dtype);

// "Q4_1": the type of most weights; "none" without any.
std::string MainWeightType(const ModelSource& source);
int64_t CountParameters(const ModelSource& source);

}  // namespace millrace::models
