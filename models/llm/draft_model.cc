#include "models/llm/draft_model.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "config/base/utf8.h"

namespace millrace::models {
namespace {

constexpr size_t kShownBytes = 40;
constexpr const char* kRemedy =
    "; take a draft model of the same family, or leave speculative_model out";

size_t NumTokens(const Vocabulary& vocabulary) {
  size_t n = vocabulary.tokens.size();
  while (n > 0 && n <= vocabulary.kinds.size() &&
         vocabulary.kinds[n - 1] == TokenKind::kUnused) {
    --n;
  }
  return n;
}

// Foreign text, cut to a length that a log line bears.
std::string Shown(std::string_view text) {
  return "'" + ReplaceInvalidUtf8(Shortened(text, kShownBytes)) + "'";
}

}  // namespace

LlmOptions DraftOptions(const LlmOptions& options) {
  LlmOptions draft = options;
  draft.settings.speculative_model.clear();
  draft.settings.speculative_method = "none";
  // Nobody talks to it.
  draft.settings.chat_template.clear();
  draft.settings.generation_config = "none";
  draft.settings.override_generation_config.clear();
  draft.progress = {};
  return draft;
}

Status CheckSameVocabulary(const Vocabulary& target, const Vocabulary& draft) {
  if (target.model != draft.model) {
    return InvalidArgument("its tokenizer is of kind " + Shown(draft.model) +
                           ", that of the model " + Shown(target.model) +
                           kRemedy);
  }
  const size_t num_target = NumTokens(target);
  const size_t num_draft = NumTokens(draft);
  const auto [at_target, at_draft] =
      std::mismatch(target.tokens.begin(),
                    target.tokens.begin() + static_cast<ptrdiff_t>(num_target),
                    draft.tokens.begin(),
                    draft.tokens.begin() + static_cast<ptrdiff_t>(num_draft));
  const auto same = static_cast<size_t>(at_target - target.tokens.begin());
  if (same == num_target && same == num_draft) return OkStatus();
  std::string message = "its vocabulary of " + std::to_string(num_draft) +
                        " tokens is not that of the model, which has " +
                        std::to_string(num_target);
  if (same < num_target && same < num_draft) {
    message += ": token " + std::to_string(same) + " is " + Shown(*at_draft) +
               " instead of " + Shown(*at_target);
  }
  return InvalidArgument(message + kRemedy);
}

}  // namespace millrace::models
