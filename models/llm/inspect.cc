// Facts of a file, worked out the same way for `inspect` and for loading.
#include "models/llm/inspect.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

namespace millrace::models {

StatusOr<LlmPlan> PlanLlm(const GgufFile& file) {
  LlmPlan plan{};
  ASSIGN_OR_RETURN(const std::string_view architecture,
                   file.String("general.architecture"));
  plan.family = FindFamily(architecture);
  if (plan.family == nullptr) {
    return Unimplemented("the architecture '" +
                         std::string(architecture.substr(0, 64)) +
                         "' is not served; these are: " + FamilyNames());
  }
  ASSIGN_OR_RETURN(plan.config, ReadModelConfig(file, plan.family->traits));
  ASSIGN_OR_RETURN(plan.tensors, FindModelTensors(file, plan.config));
  return plan;
}

int64_t KvBytesPerToken(const ModelConfig& config, bool f32) {
  return int64_t{2} * config.layers * config.kv_heads * config.head_dim *
         (f32 ? 4 : 2);
}

std::string MainWeightType(const GgufFile& file) {
  std::map<std::string_view, int64_t> elements;
  for (const GgufTensor& tensor : file.tensors()) {
    if (tensor.num_dims > 1) {
      elements[InfoOf(tensor.type).name] += tensor.num_elements;
    }
  }
  const auto most = std::max_element(
      elements.begin(), elements.end(),
      [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == elements.end() ? "none" : std::string(most->first);
}

int64_t CountParameters(const GgufFile& file) {
  int64_t count = 0;
  for (const GgufTensor& tensor : file.tensors()) count += tensor.num_elements;
  return count;
}

}  // namespace millrace::models
