// Text to ids as BERT does it: the text is cleaned, cut at white space and
// punctuation, and each word becomes the longest tokens that the vocabulary
// has, the later ones of a word with "##" before them.
//
//   ASSIGN_OR_RETURN(auto pieces, WordPieces::Create(vocabulary));
//   pieces->Encode("Unaffable!", ids);     // un ##aff ##able !
//
// Source: Devlin et al. 2018 (BERT); the normaliser and the pre-tokenizer are
// those that tokenizer.json calls BertNormalizer and BertPreTokenizer.
//
// Immutable after Create; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "config/base/status.h"
#include "models/text/tokenizer.h"

namespace millrace::models {

// A token and the bytes of the text that it stands for.
struct TokenSpan {
  int32_t id = -1;
  size_t begin = 0;
  size_t end = 0;
};

class WordPieces {
 public:
  // The vocabulary's tokens must stay where they are. INVALID_ARGUMENT names
  // what is missing or out of range.
  static StatusOr<std::unique_ptr<const WordPieces>> Create(
      const Vocabulary& vocabulary);

  // Appends the ids of a stretch of valid UTF-8 between special tokens.
  void Encode(std::string_view text, std::vector<int32_t>& out) const;
  // The same with each token's place in `text`. A mark that is dropped belongs
  // to no token.
  void EncodeSpans(std::string_view text, std::vector<TokenSpan>& out) const;

 private:
  WordPieces() = default;
  std::string Normalise(std::string_view text) const;
  // lengths[i]: bytes of the word that the i-th token appended stands for.
  void EncodeWord(std::string_view word, std::vector<int32_t>& out,
                  std::vector<size_t>* lengths = nullptr) const;

  WordPieceRules rules_;
  int32_t unk_id_ = -1;
  std::unordered_map<std::string_view, int32_t> first_;      // of a word
  std::unordered_map<std::string_view, int32_t> continued_;  // without "##"
  size_t longest_ = 1;                                       // bytes of a token
};

}  // namespace millrace::models
