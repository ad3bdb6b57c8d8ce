// Text to token ids and back, as GGUF files and Hugging Face folders carry it:
// byte-level BPE (GPT-2 style), whose pre-tokenisers are regular expressions by
// name or given, run by PCRE2 with its JIT; and SentencePiece's BPE and Unigram
// (sentence_pieces.h); and WordPiece (word_pieces.h).
//
//   ASSIGN_OR_RETURN(auto tokenizer, Tokenizer::Create(std::move(vocabulary)));
//   std::vector<int32_t> ids = tokenizer->Encode("Hello", {});
//
// Special tokens ("<|im_end|>") in the text become their ids only when
// parse_special is set: a chat prompt made by a template sets it for the
// template's own text, never for what a user wrote (see ChatTemplate).
// User-defined tokens ("<think>", runs of spaces) are no special tokens: they
// are found in every text, as models are trained with them.
// Immutable after Create; thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"
#include "models/text/pretokenizer.h"

namespace millrace::models {

enum class TokenKind : uint8_t {
  kNormal,
  kControl,
  kUserDefined,
  kUnused,
  kByte
};

// Where SentencePiece puts a space that the text does not have: nowhere, before
// each stretch between special tokens, or only before one that has none yet,
// each of them or the first of a text.
enum class SpacePrefix : uint8_t {
  kNone,
  kEach,
  kEachIfLacking,
  kFirstIfLacking
};

// What WordPiece does to a text and its words.
struct WordPieceRules {
  bool clean_text = true;        // control characters go, white space is " "
  bool space_ideographs = true;  // Chinese characters are words
  bool strip_accents = true;
  bool lowercase = true;
  std::string continuing_prefix = "##";  // of tokens inside a word
  int64_t max_word_characters = 100;     // longer words are unknown
};

// What a model file says of its tokenizer.
struct Vocabulary {
  // As GGUF files name it: "gpt2" (byte-level BPE), "llama" (SentencePiece
  // BPE), "t5" (SentencePiece Unigram), "bert" (WordPiece).
  std::string model;
  std::string pre;  // "smollm", "llama-bpe", "qwen2", "gpt-2"…; or empty,
                    // then the next two say how text is cut:
  std::vector<SplitRule> splits;
  bool whole_pieces_first = false;  // see Pretokenizer
  bool nfc = false;  // ordinary text is brought to Unicode's form C first
  std::vector<std::string> tokens;  // id → piece, in GPT-2's byte alphabet
  std::vector<TokenKind> kinds;     // id → kind, same length
  std::vector<std::string> merges;  // "left right", best first
  // Of SentencePiece:
  std::vector<double> scores;  // id → score; BPE with merges has none
  SpacePrefix space_prefix = SpacePrefix::kNone;
  bool split_words = false;    // no token reaches over a space
  bool byte_fallback = false;  // characters without token become bytes
  bool fuse_unknown = true;    // neighbouring unknown characters are one token
  int32_t unk_id = -1;         // -1: unknown characters vanish
  WordPieceRules word_pieces = {};  // of WordPiece
  // Special tokens that swallow the white space before or behind them.
  std::vector<int32_t> lstrip_ids;
  std::vector<int32_t> rstrip_ids;
  int32_t bos_id = -1;  // -1: none
  int32_t eos_id = -1;
  std::vector<int32_t> eog_ids;  // all ids that end an answer, eos included
  bool add_bos = false;
};

struct EncodeOptions {
  bool add_special = false;    // the model's own BOS, if it has one
  bool parse_special = false;  // special tokens in the text become their ids
};

class Tokenizer {
 public:
  // INVALID_ARGUMENT names what is missing, out of range or unsupported.
  static StatusOr<std::unique_ptr<Tokenizer>> Create(Vocabulary vocabulary);
  ~Tokenizer();

  // The text must be valid UTF-8; ill-formed bytes are taken as U+FFFD.
  // Linear in its length but for pieces, each O(n log n) of its own length.
  std::vector<int32_t> Encode(std::string_view text,
                              const EncodeOptions& options) const;
  // A prompt in parts, some of which may hold special tokens and some (user
  // text) may not; neighbouring ordinary text is encoded as if it were one,
  // but a special token begins and ends within neighbours of one kind.
  struct Part {
    std::string_view text;
    bool parse_special;
  };
  std::vector<int32_t> EncodeParts(std::span<const Part> parts,
                                   bool add_special) const;

  // Bytes of one token: may be part of a character. Special tokens give their
  // text when with_special, else nothing. Ids out of range give nothing.
  std::string_view Piece(int32_t id, bool with_special) const;
  std::string Decode(std::span<const int32_t> ids, bool with_special) const;

  bool IsSpecial(int32_t id) const;
  bool EndsAnswer(int32_t id) const;  // one of eog_ids
  std::optional<int32_t> IdOfSpecial(std::string_view text) const;

  int32_t size() const;
  const Vocabulary& vocabulary() const;  // merges are dropped after Create

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace::models
