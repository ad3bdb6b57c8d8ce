// The processors: a grammar, fixed sets of tokens, and sequences of tokens
// that must not appear.
#include "models/llm/logits_processor.h"

#include <algorithm>
#include <unordered_map>
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

// Where a grammar allows none of these tokens, it holds alone.
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
    uint32_t any = 0;
    for (size_t i = 0; i < mask.size(); ++i) any |= mask[i] & mask_[i];
    if (any == 0) return;
    for (size_t i = 0; i < mask.size(); ++i) mask[i] &= mask_[i];
  }
  void Accept(int32_t) override {}
  void Rollback(int32_t) override {}

 private:
  std::vector<uint32_t> mask_;
};

// Clears these bits, unless no other is set.
void Forbid(std::span<const int32_t> ids, std::span<uint32_t> mask) {
  std::vector<int32_t> cleared;
  for (const int32_t id : ids) {
    if (!IsAllowed(mask, id)) continue;
    mask[static_cast<size_t>(id) / 32] &= ~(1u << (id % 32));
    cleared.push_back(id);
  }
  if (cleared.empty()) return;
  if (std::ranges::any_of(mask, [](uint32_t word) { return word != 0; })) {
    return;
  }
  for (const int32_t id : cleared) {
    mask[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
  }
}

// Source: suppress_tokens of transformers.
class SuppressedTokens final : public LogitsProcessor {
 public:
  SuppressedTokens(std::vector<int32_t> ids, int32_t vocab)
      : ids_(std::move(ids)) {
    std::erase_if(ids_, [&](int32_t id) { return id < 0 || id >= vocab; });
  }

  void Restrict(std::span<uint32_t> mask) const override { Forbid(ids_, mask); }
  void Accept(int32_t) override {}
  void Rollback(int32_t) override {}

 private:
  std::vector<int32_t> ids_;
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
    std::vector<int32_t> forbidden;
    for (const std::vector<int32_t>& word : words_) {
      if (Ends(std::span(word).first(word.size() - 1))) {
        forbidden.push_back(word.back());
      }
    }
    Forbid(forbidden, mask);
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

// A token is forbidden where it would end a sequence of n tokens that stands in
// the text already. When nothing else could be drawn, it is allowed.
// Source: no_repeat_ngram_size of transformers.
class NoRepeatedNgram final : public LogitsProcessor {
 public:
  NoRepeatedNgram(int32_t n, std::span<const int32_t> prompt, int32_t vocab)
      : prefix_tokens_(static_cast<size_t>(n) - 1), vocab_(vocab) {
    for (const int32_t id : prompt) Accept(id);
  }

  void Restrict(std::span<uint32_t> mask) const override {
    if (text_.size() < prefix_tokens_) return;
    const auto found = places_.find(HashBefore(text_.size()));
    if (found == places_.end()) return;
    const auto last = std::span(text_).last(prefix_tokens_);
    std::vector<int32_t> forbidden;
    for (const size_t place : found->second) {
      const auto before =
          std::span(text_).subspan(place - prefix_tokens_, prefix_tokens_);
      const int32_t id = text_[place];
      // Another prefix may have the same hash.
      if (id >= 0 && id < vocab_ && std::ranges::equal(before, last)) {
        forbidden.push_back(id);
      }
    }
    Forbid(forbidden, mask);
  }
  void Accept(int32_t id) override {
    const size_t place = text_.size();
    text_.push_back(id);
    if (place >= prefix_tokens_) places_[HashBefore(place)].push_back(place);
  }
  void Rollback(int32_t n) override {
    for (; n > 0; --n) {
      const size_t place = text_.size() - 1;
      if (place >= prefix_tokens_) {
        const auto found = places_.find(HashBefore(place));
        found->second.pop_back();
        if (found->second.empty()) places_.erase(found);
      }
      text_.pop_back();
    }
  }

 private:
  // Of the prefix_tokens_ tokens before a place. FNV-1a.
  uint64_t HashBefore(size_t place) const {
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = place - prefix_tokens_; i < place; ++i) {
      hash = (hash ^ static_cast<uint32_t>(text_[i])) * 0x100000001b3u;
    }
    return hash;
  }

  const size_t prefix_tokens_;  // n - 1
  const int32_t vocab_;
  std::vector<int32_t> text_;  // prompt and output
  // Where a token stands behind a prefix of this hash, ascending.
  std::unordered_map<uint64_t, std::vector<size_t>> places_;
};

}  // namespace

std::vector<std::unique_ptr<LogitsProcessor>> MakeLogitsProcessors(
    const SamplingParams& params, std::span<const int32_t> prompt,
    int32_t vocab) {
  std::vector<std::unique_ptr<LogitsProcessor>> processors;
  if (params.grammar != nullptr) {
    processors.push_back(std::make_unique<Grammar>(*params.grammar, vocab));
  }
  if (!params.allowed_token_ids.empty()) {
    processors.push_back(
        std::make_unique<AllowedTokens>(params.allowed_token_ids, vocab));
  }
  if (!params.suppress_tokens.empty()) {
    processors.push_back(
        std::make_unique<SuppressedTokens>(params.suppress_tokens, vocab));
  }
  if (!params.bad_words.empty()) {
    processors.push_back(std::make_unique<BadWords>(params.bad_words, vocab));
  }
  if (params.no_repeat_ngram_size > 0) {
    processors.push_back(std::make_unique<NoRepeatedNgram>(
        params.no_repeat_ngram_size, prompt, vocab));
  }
  return processors;
}

}  // namespace millrace::models
