// tokenizer.model, SentencePiece's own file: a ModelProto in the wire format of
// protocol buffers, of which the tokens, their scores and kinds, and how text
// is prepared are read.
//
//   ASSIGN_OR_RETURN(Vocabulary vocabulary, ReadSentenceModel(bytes));
//
// Source: sentencepiece_model.proto of google/sentencepiece.
#pragma once

#include <string_view>

#include "config/base/status.h"
#include "models/text/tokenizer.h"

namespace millrace::models {

// INVALID_ARGUMENT for bytes that are no such file, UNIMPLEMENTED for models of
// words or characters and for text that is normalised by a table.
StatusOr<Vocabulary> ReadSentenceModel(std::string_view bytes);

}  // namespace millrace::models
