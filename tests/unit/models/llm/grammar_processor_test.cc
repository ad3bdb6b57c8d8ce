// A grammar among the rules of a sequence, over a grammar that counts: token k
// may be followed by k + 1 alone, and kLast by kEnd.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "models/cpu/llm_kernels.h"
#include "models/grammar/token_grammar.h"
#include "models/llm/logits_processor.h"
#include "models/llm/sampler.h"

namespace millrace::models {
namespace {

using ::testing::ElementsAre;

constexpr int32_t kVocab = 70;
constexpr int32_t kLast = 40;
constexpr int32_t kEnd = 69;

class Counting final : public TokenGrammar {
 public:
  class Matcher final : public GrammarMatcher {
   public:
    void Fill(std::span<uint32_t> mask) override {
      std::ranges::fill(mask, 0);
      const auto next = static_cast<size_t>(Next());
      mask[next / 32] |= 1u << (next % 32);
    }
    bool Accept(int32_t id) override {
      if (id != Next() || id == kEnd) return false;
      ++accepted_;
      return true;
    }
    void Rollback(int32_t n) override { accepted_ -= n; }
    std::vector<int32_t> ForcedTokens(int32_t most) override {
      std::vector<int32_t> ids;
      for (int32_t id = accepted_; id <= std::min(kLast, accepted_ + most - 1);
           ++id) {
        ids.push_back(id);
      }
      return ids;
    }

   private:
    int32_t Next() const { return accepted_ <= kLast ? accepted_ : kEnd; }
    int32_t accepted_ = 0;
  };

  std::unique_ptr<GrammarMatcher> NewMatcher() const override {
    return std::make_unique<Matcher>();
  }
  int64_t memory_bytes() const override { return 0; }
};

SamplingParams Params() {
  SamplingParams params;
  params.grammar = std::make_shared<const Counting>();
  params.temperature = 0;
  return params;
}

std::vector<int32_t> Allowed(const LogitsProcessor& processor) {
  std::vector<uint32_t> mask(TokenMaskWords(kVocab), ~0u);
  processor.Restrict(mask);
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < kVocab; ++id) {
    if (IsAllowed(mask, id)) ids.push_back(id);
  }
  return ids;
}

TEST(GrammarProcessor, FollowsTheOutput) {
  const auto processors = MakeLogitsProcessors(Params(), {}, kVocab);
  ASSERT_EQ(processors.size(), 1u);
  EXPECT_THAT(Allowed(*processors[0]), ElementsAre(0));
  processors[0]->Accept(0);
  processors[0]->Accept(1);
  EXPECT_THAT(Allowed(*processors[0]), ElementsAre(2));
  processors[0]->Rollback(1);
  EXPECT_THAT(Allowed(*processors[0]), ElementsAre(1));
}

TEST(GrammarProcessor, TokensThatStrayAreTakenBackAlone) {
  const auto processors = MakeLogitsProcessors(Params(), {}, kVocab);
  for (const int32_t id : {0, 1, 9, 2}) processors[0]->Accept(id);
  processors[0]->Rollback(1);
  EXPECT_THAT(Allowed(*processors[0]), ElementsAre(2));
  processors[0]->Rollback(2);
  EXPECT_THAT(Allowed(*processors[0]), ElementsAre(1));
}

TEST(GrammarProcessor, WhatIsForcedIsKnownUnlessATokenStrayed) {
  const auto processors = MakeLogitsProcessors(Params(), {}, kVocab);
  processors[0]->Accept(0);
  EXPECT_THAT(processors[0]->ForcedTokens(2), ElementsAre(1, 2));
  processors[0]->Accept(9);
  EXPECT_THAT(processors[0]->ForcedTokens(2), ElementsAre());
  processors[0]->Rollback(1);
  EXPECT_THAT(processors[0]->ForcedTokens(1), ElementsAre(1));
}

class GrammarSampling : public ::testing::Test {
 protected:
  int32_t Draw(std::span<const int32_t> drafts,
               std::span<const uint32_t> mask) {
    std::vector<float> logits(kVocab);
    for (int32_t id = 0; id < kVocab; ++id) {
      logits[id] = static_cast<float>(id % 7);
    }
    Sampler::Scratch scratch;
    std::vector<TokenLogprob> top(kMaxTopLogprobs);
    return sampler_.Sample(0, 5, kSample, drafts, logits, top, scratch, mask)
        .id;
  }
  const KernelTable& kernels_ = *ScalarKernels();
  Sampler sampler_{kernels_, kVocab, 1};
};

TEST_F(GrammarSampling, MasksOfDraftTokensAreThoseOfTheTokensDrawn) {
  const SamplingParams params = Params();
  sampler_.InitSlot(
      {.slot = 0, .sampling = &params, .prompt = {}, .output = {}});
  const size_t words = sampler_.mask_words();
  const std::vector<int32_t> drafts = {0, 1, 5};  // the last one strays
  std::vector<uint32_t> masks(words * 4);
  sampler_.FillMasks(0, drafts, masks);
  const auto mask = [&](size_t row) {
    return std::span<const uint32_t>(masks).subspan(row * words, words);
  };
  EXPECT_EQ(Draw({}, mask(0)), 0);
  EXPECT_EQ(Draw(std::span(drafts).first(1), mask(1)), 1);
  EXPECT_EQ(Draw(std::span(drafts).first(2), mask(2)), 2);
  // Nothing of it was kept.
  std::vector<uint32_t> again(words);
  sampler_.FillMasks(0, {}, again);
  EXPECT_EQ(Draw({}, again), 0);
}

TEST_F(GrammarSampling, APreemptedSequenceGoesOnWhereItWas) {
  const SamplingParams params = Params();
  const std::vector<int32_t> output = {0, 1, 2};
  sampler_.InitSlot(
      {.slot = 0, .sampling = &params, .prompt = {}, .output = output});
  std::vector<uint32_t> mask(sampler_.mask_words());
  sampler_.FillMasks(0, {}, mask);
  EXPECT_EQ(Draw({}, mask), 3);
}

TEST_F(GrammarSampling, WhatIsForcedFollowsTheTokensOfTheSlot) {
  SamplingParams params = Params();
  params.bad_words = {{50}};  // a rule that forces nothing
  sampler_.InitSlot(
      {.slot = 0, .sampling = &params, .prompt = {}, .output = {}});
  EXPECT_THAT(sampler_.ForcedTokens(0, 2), ElementsAre(0, 1));
  sampler_.Count(0, {0, 0});
  EXPECT_THAT(sampler_.ForcedTokens(0, 3), ElementsAre(1, 2, 3));
  params.grammar = nullptr;
  sampler_.InitSlot(
      {.slot = 0, .sampling = &params, .prompt = {}, .output = {}});
  EXPECT_THAT(sampler_.ForcedTokens(0, 2), ElementsAre());
}

TEST_F(GrammarSampling, TheEndIsDrawnAlsoBelowMinTokens) {
  SamplingParams params = Params();
  params.stop_ids = {kEnd};
  params.min_tokens = 1000;
  std::vector<int32_t> output(kLast + 1);
  for (int32_t id = 0; id <= kLast; ++id) output[id] = id;
  sampler_.InitSlot(
      {.slot = 0, .sampling = &params, .prompt = {}, .output = output});
  std::vector<uint32_t> mask(sampler_.mask_words());
  sampler_.FillMasks(0, {}, mask);
  EXPECT_EQ(Draw({}, mask), kEnd);
}

}  // namespace
}  // namespace millrace::models
