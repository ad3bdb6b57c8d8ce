// What a GGUF file says of its tokenizer.
#pragma once

#include "config/base/status.h"
#include "models/files/gguf.h"
#include "models/text/tokenizer.h"

namespace millrace::models {

// INVALID_ARGUMENT names the missing or malformed key.
StatusOr<Vocabulary> ReadVocabulary(const GgufFile& file);

}  // namespace millrace::models
