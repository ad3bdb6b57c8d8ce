// Masks against a plain reference that looks at all output tokens each time.
#include "models/llm/logits_processor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

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

// What may follow `output`, by the words of SamplingParams.
std::vector<int32_t> Reference(const SamplingParams& params,
                               const std::vector<int32_t>& output) {
  std::vector<int32_t> allowed, left;
  for (int32_t id = 0; id < kVocab; ++id) {
    if (params.allowed_token_ids.empty() ||
        std::ranges::count(params.allowed_token_ids, id) > 0) {
      allowed.push_back(id);
    }
  }
  for (const int32_t id : allowed) {
    std::vector<int32_t> text = output;
    text.push_back(id);
    const bool bad = std::ranges::any_of(
        params.bad_words, [&](const std::vector<int32_t>& word) {
          return word.size() <= text.size() &&
                 std::equal(word.begin(), word.end(), text.end() - word.size());
        });
    if (!bad) left.push_back(id);
  }
  return left.empty() ? allowed : left;
}

TEST(LogitsProcessor, WithoutARuleThereIsNone) {
  EXPECT_THAT(MakeLogitsProcessors({}, kVocab), IsEmpty());
}

TEST(LogitsProcessor, OnlyAllowedTokensAreLeft) {
  SamplingParams params;
  params.allowed_token_ids = {69, 3, 32, 3};
  EXPECT_THAT(Allowed(MakeLogitsProcessors(params, kVocab)),
              ElementsAre(3, 32, 69));
}

TEST(LogitsProcessor, ABadWordIsForbiddenAtItsLastToken) {
  SamplingParams params;
  params.allowed_token_ids = {1, 2, 3};
  params.bad_words = {{1, 2}, {3}};
  const Processors processors = MakeLogitsProcessors(params, kVocab);
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
  EXPECT_THAT(Allowed(MakeLogitsProcessors(params, kVocab)), ElementsAre(5));
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
    const Processors processors = MakeLogitsProcessors(params, kVocab);
    std::vector<int32_t> output;
    for (int step = 0; step < 30; ++step) {
      const std::vector<int32_t> allowed = Allowed(processors);
      ASSERT_EQ(allowed, Reference(params, output)) << "round " << round;
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
