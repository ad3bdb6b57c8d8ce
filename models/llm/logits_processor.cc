// The processors: a grammar, a fixed set of tokens, and sequences of tokens
// that must not appear.
#include "models/llm/logits_processor.h"

#include <algorithm>
#include <utility>

#include "models/grammar/token_grammar.h"

namespace millrace::models {
namespace {

// Tokens that lead on in a grammar. A token that does not (one drawn because
// all others were forbidden by other rules) leaves the grammar where it is: the
// mask stays that of the text before it, until it is taken back.
class Grammar final : public LogitsProcessor {
 public:
  Grammar(const TokenGrammar& grammar, int32_t vocab)
      : matcher_(grammar.NewMatcher()), mask_(TokenMaskWords(vocab)) {}

  void Restrict(std::span<uint32_t> mask) const override {
    matcher_->Fill(mask_);
    for (size_t i = 0; i < mask.size(); ++i) mask[i] &= mask_[i];
  }
  void Accept(int32_t id) override {
    if (num_strayed_ > 0 || !matcher_->Accept(id)) ++num_strayed_;
  }
  void Rollback(int32_t n) override {
    const int32_t strayed = std::min(n, num_strayed_);
    num_strayed_ -= strayed;
    matcher_->Rollback(n - strayed);
  }
  std::vector<int32_t> ForcedTokens(int32_t most) const override {
    if (num_strayed_ > 0) return {};
    return matcher_->ForcedTokens(most);
  }

 private:
  const std::unique_ptr<GrammarMatcher> matcher_;
  mutable std::vector<uint32_t> mask_;  // room for Restrict
  int32_t num_strayed_ = 0;  // last tokens, which the matcher has not seen
};

// Source: allowed_token_ids of vLLM.
class AllowedTokens final : public LogitsProcessor {
 public:
  AllowedTokens(std::span<const int32_t> ids, int32_t vocab)
      : mask_(TokenMaskWords(vocab), 0) {
    for (const int32_t id : ids) {
      if (id < 0 || id >= vocab) continue;
      mask_[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
    }
  }

  void Restrict(std::span<uint32_t> mask) const override {
    for (size_t i = 0; i < mask.size(); ++i) mask[i] &= mask_[i];
  }
  void Accept(int32_t) override {}
  void Rollback(int32_t) override {}

 private:
  std::vector<uint32_t> mask_;
};

// The last token of a sequence is forbidden where the output tokens before it
// spell the rest. When nothing else could be drawn, it is allowed.
// Source: bad_words of vLLM.
class BadWords final : public LogitsProcessor {
 public:
  BadWords(std::vector<std::vector<int32_t>> words, int32_t vocab)
      : words_(std::move(words)) {
    std::erase_if(words_, [&](const std::vector<int32_t>& word) {
      return word.empty() || word.back() < 0 || word.back() >= vocab;
    });
  }

  void Restrict(std::span<uint32_t> mask) const override {
    std::vector<int32_t> cleared;
    for (const std::vector<int32_t>& word : words_) {
      const int32_t last = word.back();
      if (!IsAllowed(mask, last) ||
          !Ends(std::span(word).first(word.size() - 1))) {
        continue;
      }
      mask[static_cast<size_t>(last) / 32] &= ~(1u << (last % 32));
      cleared.push_back(last);
    }
    if (cleared.empty()) return;
    if (std::ranges::any_of(mask, [](uint32_t word) { return word != 0; })) {
      return;
    }
    for (const int32_t id : cleared) {
      mask[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
    }
  }
  void Accept(int32_t id) override { output_.push_back(id); }
  void Rollback(int32_t n) override {
    output_.resize(output_.size() - static_cast<size_t>(n));
  }

 private:
  // Whether the output ends with these tokens.
  bool Ends(std::span<const int32_t> tokens) const {
    return tokens.size() <= output_.size() &&
           std::equal(tokens.rbegin(), tokens.rend(), output_.rbegin());
  }

  std::vector<std::vector<int32_t>> words_;
  std::vector<int32_t> output_;
};

}  // namespace

std::vector<std::unique_ptr<LogitsProcessor>> MakeLogitsProcessors(
    const SamplingParams& params, int32_t vocab) {
  std::vector<std::unique_ptr<LogitsProcessor>> processors;
  if (params.grammar != nullptr) {
    processors.push_back(std::make_unique<Grammar>(*params.grammar, vocab));
  }
  if (!params.allowed_token_ids.empty()) {
    processors.push_back(
        std::make_unique<AllowedTokens>(params.allowed_token_ids, vocab));
  }
  if (!params.bad_words.empty()) {
    processors.push_back(std::make_unique<BadWords>(params.bad_words, vocab));
  }
  return processors;
}

}  // namespace millrace::models
