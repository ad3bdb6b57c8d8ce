// Text to ids as SentencePiece does it: spaces become "▁", a stretch of text is
// not cut at spaces (unless the file says so), and what has no token becomes
// its bytes' tokens. Two kinds: BPE, which merges neighbouring characters
// (llama), and Unigram, which finds the likeliest sequence of tokens (t5).
//
//   ASSIGN_OR_RETURN(auto pieces, SentencePieces::Create(vocabulary));
//   pieces->Encode("Hello world", /*first=*/true, ids);
//
// Sources: Sennrich et al. 2016 (BPE), Kudo 2018 (Unigram), Kudo and Richardson
// 2018 (SentencePiece).
//
// Immutable after Create; thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "config/base/status.h"
#include "models/text/bpe.h"
#include "models/text/tokenizer.h"

namespace millrace::models {

class SentencePieces {
 public:
  // The vocabulary's tokens must stay where they are. INVALID_ARGUMENT names
  // what is missing or out of range.
  static StatusOr<std::unique_ptr<const SentencePieces>> Create(
      const Vocabulary& vocabulary);

  // Appends the ids of a stretch of valid UTF-8 between special tokens;
  // `first`: nothing stands before it.
  void Encode(std::string_view text, bool first,
              std::vector<int32_t>& out) const;

  // The bytes that a token stands for: "▁" is a space.
  static std::string BytesOf(std::string_view token);

 private:
  SentencePieces() = default;
  Status AddMerges(const Vocabulary& vocabulary);
  void AddMergesByScore(const Vocabulary& vocabulary);
  std::string Normalise(std::string_view text, bool first) const;
  void EncodeWord(std::string_view word, std::vector<int32_t>& out) const;
  void EncodeUnigram(std::string_view word, std::vector<int32_t>& out) const;
  // The tokens of a character that has none of its own.
  void AppendUnknown(std::string_view character,
                     std::vector<int32_t>& out) const;
  int32_t IdOf(std::string_view piece) const;  // -1: none

  bool unigram_ = false;
  SpacePrefix prefix_ = SpacePrefix::kNone;
  bool split_words_ = false;
  bool byte_fallback_ = false;
  bool fuse_unknown_ = true;
  int32_t unk_id_ = -1;
  std::unordered_map<std::string_view, int32_t> ids_;
  std::array<int32_t, 256> id_of_byte_;
  MergeTable merges_{0};
  // Of Unigram.
  std::vector<double> scores_;
  double unknown_score_ = 0;
  size_t longest_ = 1;  // bytes of a token
};

}  // namespace millrace::models
