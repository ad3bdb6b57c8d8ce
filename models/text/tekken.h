// tekken.json, Mistral's file of a tokenizer in the style of tiktoken: bytes of
// tokens by rank, special tokens before them, and a rule that cuts text. Where
// other files list merges, here two neighbours merge into the token of lowest
// rank that their bytes together are.
//
//   ASSIGN_OR_RETURN(Vocabulary vocabulary, ReadTekken(json));
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"
#include "models/text/tokenizer.h"

namespace millrace::models {

// INVALID_ARGUMENT names what is missing or out of range.
StatusOr<Vocabulary> ReadTekken(std::string_view json);

// The merges, best first, that a tokenizer of ranked bytes makes: pairs of
// bytes that give the token of that rank. Tokens of one byte, and those that no
// two tokens of lower rank make, have none.
struct RankedMerge {
  std::string left;
  std::string right;
};
std::vector<RankedMerge> MergesOfRanks(const std::vector<std::string>& tokens);

}  // namespace millrace::models
