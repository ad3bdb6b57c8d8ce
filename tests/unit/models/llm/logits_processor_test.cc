// Masks against a plain reference that looks at all output tokens each time.
#include "models/llm/logits_processor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "models/grammar/token_grammar.h"

namespace millrace::models {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int32_t kVocab = 70;  // the last word of a mask is not full

using Processors = std::vector<std::unique_ptr<LogitsProcessor>>;

std::vector<int32_t> Allowed(const Processors& processors) {
  std::vector<uint32_t> mask(TokenMaskWords(kVocab), ~0u);
  for (const auto& processor : processors) processor->Restrict(mask);
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < kVocab; ++id) {
    if (IsAllowed(mask, id)) ids.push_back(id);
  }
  return ids;
}

// What may follow, by the words of SamplingParams: each rule in turn, left out
// where it would leave nothing.
std::vector<int32_t> Reference(const SamplingParams& params,
                               const std::vector<int32_t>& prompt,
                               const std::vector<int32_t>& output) {
  std::vector<int32_t> left;
  for (int32_t id = 0; id < kVocab; ++id) {
    if (params.allowed_token_ids.empty() ||
        std::ranges::count(params.allowed_token_ids, id) > 0) {
      left.push_back(id);
    }
  }
  const auto apply = [&](const auto& is_forbidden) {
    std::vector<int32_t> rest;
    for (const int32_t id : left) {
      if (!is_forbidden(id)) rest.push_back(id);
    }
    if (!rest.empty()) left = rest;
  };
  apply([&](int32_t id) {
    return std::ranges::count(params.suppress_tokens, id) > 0;
  });
  apply([&](int32_t id) {
    std::vector<int32_t> text = output;
    text.push_back(id);
    return std::ranges::any_of(
        params.bad_words, [&](const std::vector<int32_t>& word) {
          return word.size() <= text.size() &&
                 std::equal(word.begin(), word.end(), text.end() - word.size());
        });
  });
  // The last n tokens stand in the text at another place, too.
  apply([&](int32_t id) {
    const auto n = static_cast<size_t>(params.no_repeat_ngram_size);
    std::vector<int32_t> text = prompt;
    text.insert(text.end(), output.begin(), output.end());
    text.push_back(id);
    for (size_t i = 0; n > 0 && i + n < text.size(); ++i) {
      if (std::equal(text.begin() + i, text.begin() + i + n, text.end() - n)) {
        return true;
      }
    }
    return false;
  });
  return left;
}

TEST(LogitsProcessor, WithoutARuleThereIsNone) {
  EXPECT_THAT(MakeLogitsProcessors({}, {}, kVocab), IsEmpty());
}

TEST(LogitsProcessor, OnlyAllowedTokensAreLeft) {
  SamplingParams params;
  params.allowed_token_ids = {69, 3, 32, 3};
  EXPECT_THAT(Allowed(MakeLogitsProcessors(params, {}, kVocab)),
              ElementsAre(3, 32, 69));
}

// Allows the same tokens everywhere.
class FixedGrammar final : public TokenGrammar {
 public:
  explicit FixedGrammar(std::vector<int32_t> ids) : ids_(std::move(ids)) {}
  std::unique_ptr<GrammarMatcher> NewMatcher() const override {
    class Matcher final : public GrammarMatcher {
     public:
      explicit Matcher(const std::vector<int32_t>& ids) : ids_(ids) {}
      void Fill(std::span<uint32_t> mask) override {
        std::ranges::fill(mask, 0u);
        for (const int32_t id : ids_) {
          mask[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
        }
      }
      bool Accept(int32_t id) override {
        return std::ranges::count(ids_, id) > 0;
      }
      void Rollback(int32_t) override {}
      std::vector<int32_t> ForcedTokens(int32_t) override { return {}; }

     private:
      const std::vector<int32_t>& ids_;
    };
    return std::make_unique<Matcher>(ids_);
  }
  int64_t memory_bytes() const override { return 0; }

 private:
  const std::vector<int32_t> ids_;
};

TEST(LogitsProcessor, AGrammarHoldsAloneWhereItAllowsNoneOfTheAllowedTokens) {
  SamplingParams params;
  params.grammar =
      std::make_shared<const FixedGrammar>(std::vector<int32_t>{7, 32, 69});
  params.allowed_token_ids = {5, 6};
  EXPECT_THAT(Allowed(MakeLogitsProcessors(params, {}, kVocab)),
              ElementsAre(7, 32, 69));
  params.allowed_token_ids = {5, 32, 69};
  EXPECT_THAT(Allowed(MakeLogitsProcessors(params, {}, kVocab)),
              ElementsAre(32, 69));
}

TEST(LogitsProcessor, ABadWordIsForbiddenAtItsLastToken) {
  SamplingParams params;
  params.allowed_token_ids = {1, 2, 3};
  params.bad_words = {{1, 2}, {3}};
  const Processors processors = MakeLogitsProcessors(params, {}, kVocab);
  EXPECT_THAT(Allowed(processors), ElementsAre(1, 2));
  for (const auto& processor : processors) processor->Accept(1);
  EXPECT_THAT(Allowed(processors), ElementsAre(1));
  for (const auto& processor : processors) processor->Rollback(1);
  EXPECT_THAT(Allowed(processors), ElementsAre(1, 2));
}

TEST(LogitsProcessor, BadWordsLeaveATokenToDraw) {
  SamplingParams params;
  params.allowed_token_ids = {5};
  params.bad_words = {{5}};
  EXPECT_THAT(Allowed(MakeLogitsProcessors(params, {}, kVocab)),
              ElementsAre(5));
}

TEST(LogitsProcessor, SuppressedTokensAreNeverLeftUnlessTheyAreAllThereIs) {
  SamplingParams params;
  params.allowed_token_ids = {1, 33, 69};
  params.suppress_tokens = {33, 69, 70, -1};
  EXPECT_THAT(Allowed(MakeLogitsProcessors(params, {}, kVocab)),
              ElementsAre(1));
  params.allowed_token_ids = {33, 69};
  EXPECT_THAT(Allowed(MakeLogitsProcessors(params, {}, kVocab)),
              ElementsAre(33, 69));
}

TEST(LogitsProcessor, ASequenceOfNTokensDoesNotComeTwice) {
  SamplingParams params;
  params.allowed_token_ids = {1, 2, 3};
  params.no_repeat_ngram_size = 2;
  const std::vector<int32_t> prompt = {1, 2, 1};
  const Processors processors = MakeLogitsProcessors(params, prompt, kVocab);
  EXPECT_THAT(Allowed(processors), ElementsAre(1, 3));
  for (const auto& processor : processors) processor->Accept(3);
  EXPECT_THAT(Allowed(processors), ElementsAre(1, 2, 3));
  for (const auto& processor : processors) processor->Accept(1);
  EXPECT_THAT(Allowed(processors), ElementsAre(1));  // behind 1: 2 and 3 were
  for (const auto& processor : processors) processor->Rollback(2);
  EXPECT_THAT(Allowed(processors), ElementsAre(1, 3));
}

TEST(LogitsProcessor, WithNOfOneATokenDoesNotComeTwice) {
  SamplingParams params;
  params.allowed_token_ids = {1, 2, 3};
  params.no_repeat_ngram_size = 1;
  const std::vector<int32_t> prompt = {2};
  const Processors processors = MakeLogitsProcessors(params, prompt, kVocab);
  EXPECT_THAT(Allowed(processors), ElementsAre(1, 3));
}

TEST(LogitsProcessor, AcceptAndRollbackComeToTheSameAsTheTokensAlone) {
  std::mt19937 random(7);
  const auto uniform = [&](int32_t low, int32_t high) {
    return std::uniform_int_distribution<int32_t>(low, high)(random);
  };
  for (int round = 0; round < 200; ++round) {
    SamplingParams params;
    for (int32_t i = uniform(0, 4); i > 0; --i) {
      params.allowed_token_ids.push_back(uniform(0, 5));
    }
    for (int32_t i = uniform(1, 6); i > 0; --i) {
      params.bad_words.emplace_back();
      for (int32_t k = uniform(1, 3); k > 0; --k) {
        params.bad_words.back().push_back(uniform(0, 5));
      }
    }
    for (int32_t i = uniform(0, 2); i > 0; --i) {
      params.suppress_tokens.push_back(uniform(0, 5));
    }
    params.no_repeat_ngram_size = uniform(0, 4);
    std::vector<int32_t> prompt;
    for (int32_t i = uniform(0, 12); i > 0; --i)
      prompt.push_back(uniform(0, 5));
    const Processors processors = MakeLogitsProcessors(params, prompt, kVocab);
    std::vector<int32_t> output;
    for (int step = 0; step < 30; ++step) {
      const std::vector<int32_t> allowed = Allowed(processors);
      ASSERT_EQ(allowed, Reference(params, prompt, output))
          << "round " << round;
      const int32_t back = uniform(0, 3);
      if (step % 3 == 2 && back <= static_cast<int32_t>(output.size())) {
        for (const auto& processor : processors) processor->Rollback(back);
        output.resize(output.size() - static_cast<size_t>(back));
        continue;
      }
      // Small ids, which the words are made of, as far as they are allowed.
      const int32_t most =
          std::min<int32_t>(6, static_cast<int32_t>(allowed.size()));
      output.push_back(allowed[static_cast<size_t>(uniform(0, most - 1))]);
      for (const auto& processor : processors) processor->Accept(output.back());
    }
  }
}

}  // namespace
}  // namespace millrace::models
