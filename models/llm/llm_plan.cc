// Facts of a model, worked out the same way for `inspect` and for loading.
#include "models/llm/llm_plan.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "models/llm/device.h"

namespace millrace::models {

StatusOr<LlmPlan> PlanLlm(const ModelSource& source) {
  LlmPlan plan{};
  ASSIGN_OR_RETURN(plan.config, ReadModelConfig(source));
  ASSIGN_OR_RETURN(plan.tensors, FindModelTensors(source, plan.config));
  return plan;
}

StatusOr<Vocabulary> VocabularyFor(const ModelSource& source,
                                   const ModelConfig& config) {
  ASSIGN_OR_RETURN(Vocabulary vocabulary, source.ReadVocabulary());
  if (static_cast<int64_t>(vocabulary.tokens.size()) > config.vocab) {
    return InvalidArgument("the tokenizer has " +
                           std::to_string(vocabulary.tokens.size()) +
                           " tokens, but the embedding only " +
                           std::to_string(config.vocab) + " rows");
  }
  return vocabulary;
}

int64_t KvBytesPerToken(const ModelConfig& config,
                        const std::string& kv_cache_dtype) {
  config::LlmSettings settings;
  settings.kv_cache_dtype = kv_cache_dtype;
  const auto device =
      OpenDevice(config::CommonSettings{}.device, settings, "auto", {});
  CHECK(device.ok(), "the default device holds this dtype");
  BackendShape shape;
  shape.layers = config.layers;
  shape.kv_heads = config.kv_heads;
  shape.head_dim = config.head_dim;
  return (*device)->KvPageBytes(shape) / kPageTokens;
}

std::string MainWeightType(const ModelSource& source) {
  std::map<std::string_view, int64_t> elements;
  for (const FileTensor& tensor : source.tensors()) {
    if (tensor.num_dims > 1) {
      elements[InfoOf(tensor.type).name] += tensor.num_elements;
    }
  }
  const auto most = std::max_element(
      elements.begin(), elements.end(),
      [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == elements.end() ? "none" : std::string(most->first);
}

int64_t CountParameters(const ModelSource& source) {
  int64_t count = 0;
  for (const FileTensor& tensor : source.tensors())
    count += tensor.num_elements;
  return count;
}

}  // namespace millrace::models
