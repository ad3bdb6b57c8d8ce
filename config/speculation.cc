#include "config/speculation.h"

#include <string>

namespace millrace::config {

StatusOr<SpeculativeMethod> SpeculativeMethodOf(const LlmSettings& llm) {
  const std::string& method = llm.speculative_method;
  const bool named = !llm.speculative_model.empty();
  if (method == "none" || llm.num_speculative_tokens == 0) {
    return SpeculativeMethod::kNone;
  }
  if (method == "ngram" && named) {
    return InvalidArgument(
               "speculative_method is ngram, which drafts without "
               "a model, but speculative_model is '" +
               llm.speculative_model + "'; leave one of the two out")
        .At("speculative_method");
  }
  if (method == "draft_model" && !named) {
    return InvalidArgument(
               "speculative_method is draft_model, but no model is named; set "
               "speculative_model to a smaller one of the same vocabulary")
        .At("speculative_model");
  }
  return named ? SpeculativeMethod::kDraftModel : SpeculativeMethod::kNgram;
}

}  // namespace millrace::config
