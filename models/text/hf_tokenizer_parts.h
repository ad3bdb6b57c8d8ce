// What the readers of a tokenizer.json share: its JSON, tokens and ids.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "config/base/status.h"
#include "models/text/tokenizer.h"

namespace millrace::models::hf {

using Json = nlohmann::ordered_json;

inline constexpr int64_t kMaxTokens = 1 << 22;

// Null when absent or JSON's null.
const Json* Find(const Json& object, const char* key);
// Its "type"; empty: none.
std::string TypeOf(const Json& object);
bool IsTrue(const Json& object, const char* key);
// An id of a token; `what` has it, for the message.
StatusOr<int64_t> IdOf(const Json& value, const std::string& what);

// model.vocab, an object of tokens and ids; added_tokens, which win over it.
Status ReadVocab(const Json& model, Vocabulary& out);
Status ReadAddedTokens(const Json& root, Vocabulary& out);

}  // namespace millrace::models::hf
