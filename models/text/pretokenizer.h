// Cuts text into the pieces that byte-level BPE encodes one by one. Which rules
// cut is the model's choice; a GGUF file names them, a tokenizer.json spells
// them out.
//
//   ASSIGN_OR_RETURN(auto cutter, Pretokenizer::Create("smollm"));
//   cutter->Cut("Hello 42", [](std::string_view piece) {...});
//
// Immutable after Create; thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "config/base/status.h"

namespace millrace::models {

// One cut: each match becomes a piece, and so does each gap between matches.
struct SplitRule {
  std::string pattern;     // PCRE2; may match nothing, which only cuts
  bool drop_gaps = false;  // text between matches vanishes
};
// GPT-2's own rule, which Hugging Face's ByteLevel applies.
SplitRule Gpt2Rule();

class Pretokenizer {
 public:
  // INVALID_ARGUMENT lists the known names.
  static StatusOr<std::unique_ptr<Pretokenizer>> Create(std::string_view name);
  // Each rule cuts the pieces of the one before. INVALID_ARGUMENT names a
  // pattern that PCRE2 refuses. A text on which a pattern takes more than some
  // ten million steps stays whole from there on.
  static StatusOr<std::unique_ptr<Pretokenizer>> Create(
      std::span<const SplitRule> rules, bool whole_pieces_first);
  ~Pretokenizer();

  // The text must be valid UTF-8. The pieces, in order, are all of the text but
  // for dropped gaps.
  void Cut(std::string_view text,
           const std::function<void(std::string_view)>& sink) const;

  // Whether a piece that is a token as it stands is taken without merging.
  bool whole_pieces_first() const;

 private:
  struct Impl;
  explicit Pretokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace::models
