// What a model that drafts for another one must have in common with it.
#pragma once

#include "config/base/status.h"
#include "models/llm/model.h"
#include "models/text/tokenizer.h"

namespace millrace::models {

// The options that the draft model named by `options` is loaded with.
LlmOptions DraftOptions(const LlmOptions& options);

// OK when both cut text into the same tokens with the same ids: kind, number
// and texts. Ids at the end that stand for nothing, made to fill matrices up,
// do not count.
Status CheckSameVocabulary(const Vocabulary& target, const Vocabulary& draft);

}  // namespace millrace::models
