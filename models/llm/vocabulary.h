// What a model file says of its tokenizer: all of it for a GGUF, and what
// every format shares.
#pragma once

#include "config/base/status.h"
#include "models/files/gguf.h"
#include "models/text/tokenizer.h"

namespace millrace::models {

// INVALID_ARGUMENT names the missing or malformed key.
StatusOr<Vocabulary> ReadVocabulary(const GgufFile& file);

// Control tokens that are known, by their text, to end a turn join the answer's
// ends, which come back ascending, each once.
void AddKnownEnds(Vocabulary& vocabulary);

}  // namespace millrace::models
