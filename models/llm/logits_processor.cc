// The processors that need no grammar: a fixed set of tokens, and sequences of
// tokens that must not appear.
#include "models/llm/logits_processor.h"

#include <algorithm>
#include <utility>

namespace millrace::models {
namespace {

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
