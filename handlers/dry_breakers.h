// DRY's sequence breakers in tokens: a breaker is text, and a token may hold it
// whole, or end with its beginning.
//
// Pure functions.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "models/llm/dry.h"
#include "models/text/tokenizer.h"

namespace millrace::handlers {

// Looks at every token of the vocabulary, some milliseconds.
std::shared_ptr<const models::DryBreakers> MakeDryBreakers(
    const models::Tokenizer& tokenizer, std::span<const std::string> texts);

}  // namespace millrace::handlers
