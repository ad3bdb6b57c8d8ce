// A vocabulary small enough to check by hand: the 256 bytes in order, then the
// result of each merge, then the special tokens.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "models/text/byte_alphabet.h"
#include "models/text/tokenizer.h"

namespace millrace::models {

// Merges are written in GPT-2's alphabet ("Ġ" is the space).
inline Vocabulary TinyVocabulary(
    std::string pre, std::vector<std::string> merges,
    const std::vector<std::pair<std::string, TokenKind>>& specials = {}) {
  Vocabulary out;
  out.model = "gpt2";
  out.pre = std::move(pre);
  const ByteAlphabet alphabet;
  const auto add = [&out](std::string token, TokenKind kind) {
    out.tokens.push_back(std::move(token));
    out.kinds.push_back(kind);
  };
  for (int byte = 0; byte < 256; ++byte) {
    add(std::string(alphabet.Character(static_cast<uint8_t>(byte))),
        TokenKind::kNormal);
  }
  for (const std::string& merge : merges) {
    std::string token = merge;
    token.erase(token.find(' '), 1);
    add(token, TokenKind::kNormal);
  }
  for (const auto& [token, kind] : specials) add(token, kind);
  out.merges = std::move(merges);
  return out;
}

}  // namespace millrace::models
