// Text to token ids, each with the stretch of the text that it stands for: what
// labels of tokens need to become places in a text.
//
//   ASSIGN_OR_RETURN(auto encoder, SpanEncoder::Create(tokenizer, json));
//   ASSIGN_OR_RETURN(std::vector<TokenSpan> tokens, encoder->Encode("Hello"));
//
// The ids are those of Tokenizer::Encode with parse_special; the stretches
// those of the package tokenizers. WordPiece and byte-level BPE.
//
// Immutable after Create; thread-safe. The tokenizer outlives it.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "config/base/status.h"
#include "models/text/special_matcher.h"
#include "models/text/tokenizer.h"
#include "models/text/word_pieces.h"

namespace millrace::models {

class SpanEncoder {
 public:
  // UNIMPLEMENTED names a tokenizer whose tokens cannot be found in a text.
  // `tokenizer_json` is the file that the tokenizer was made of.
  static StatusOr<std::unique_ptr<const SpanEncoder>> Create(
      const Tokenizer& tokenizer, std::string_view tokenizer_json);

  // The text must be valid UTF-8. INVALID_ARGUMENT where it has bytes that no
  // token stands for.
  StatusOr<std::vector<TokenSpan>> Encode(std::string_view text) const;

 private:
  SpanEncoder() = default;
  Status EncodeOrdinary(std::string_view text, size_t begin, size_t end,
                        std::vector<TokenSpan>& out) const;

  const Tokenizer* tokenizer_ = nullptr;
  std::unique_ptr<const WordPieces> word_pieces_;  // null: byte-level BPE
  SpecialMatcher specials_;
  std::unordered_set<int32_t> strips_left_, strips_right_;
  bool trims_spaces_ = false;  // no token's stretch begins or ends with a space
};

}  // namespace millrace::models
