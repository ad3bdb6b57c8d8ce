// The tokenizer.json of BERT and its like as a Vocabulary. What stands around a
// text is PostProcessor's.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "config/base/status.h"
#include "models/text/tokenizer.h"

namespace millrace::models {

// `root` has a model of type WordPiece. Errors are those of ReadHfTokenizer.
StatusOr<Vocabulary> ReadHfWordPieces(const nlohmann::ordered_json& root);

}  // namespace millrace::models
