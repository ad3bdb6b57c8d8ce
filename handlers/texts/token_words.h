// The text of tokens, alone and joined, as the tokenizer.json of an encoder
// says in its "decoder":
//
//   words.Of(id)             "##able", "Ġworld"
//   words.Join({"un", "##able"})    "unable"
//
// Immutable; thread-safe. The tokenizer outlives it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "config/base/status.h"
#include "models/text/byte_alphabet.h"
#include "models/text/tokenizer.h"

namespace millrace::handlers {

class TokenWords {
 public:
  // UNIMPLEMENTED names another decoder than WordPiece and ByteLevel.
  static StatusOr<TokenWords> Create(const models::Tokenizer& tokenizer,
                                     std::string_view tokenizer_json);

  const std::string& Of(int32_t id) const;
  std::string Join(std::span<const std::string> words) const;
  // Whether tokens tell by a prefix that they go on with a word.
  bool knows_words() const { return knows_words_; }
  bool IsUnknown(int32_t id) const;

 private:
  enum class Decoder { kNone, kWordPiece, kByteLevel };

  TokenWords() = default;

  const models::Tokenizer* tokenizer_ = nullptr;
  Decoder decoder_ = Decoder::kNone;
  std::string prefix_;     // of tokens that go on with a word
  bool cleans_up_ = true;  // no space before punctuation
  bool knows_words_ = false;
  models::ByteAlphabet alphabet_;
};

}  // namespace millrace::handlers
