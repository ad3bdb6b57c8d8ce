// Each rule of sampling on logits small enough to work out by hand, and the
// distribution of draws against the probabilities they should have.
#include "models/llm/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>

#include "tests/unit/models/llm/sampler_fixture.h"

namespace millrace::models {
namespace {

TEST_F(SamplerTest, GreedyTakesTheLowestOfEqualIds) {
  params_.temperature = 0;
  EXPECT_EQ(Sample({1, 3, 2, 3}), 1);
}

TEST_F(SamplerTest, DrawsFollowTheSoftmaxOfLogitsOverTemperature) {
  params_.temperature = 2;
  // Weights e^(x/2): 4, 2, 1, 1.
  const float ln2 = std::log(2.0f);
  const auto shares = Shares({4 * ln2, 2 * ln2, 0, 0});
  // Standard error of a share over 20000 draws is at most 0.0036.
  EXPECT_NEAR(shares.at(0), 0.5, 0.018);
  EXPECT_NEAR(shares.at(1), 0.25, 0.018);
  EXPECT_NEAR(shares.at(2), 0.125, 0.018);
  EXPECT_NEAR(shares.at(3), 0.125, 0.018);
}

TEST_F(SamplerTest, ADrawDependsOnSeedAndPositionOnly) {
  const std::vector<float> flat(64, 0.0f);
  const int32_t first = Sample(flat, 5);
  Sample(flat, 6);
  EXPECT_EQ(Sample(flat, 5), first);
  std::set<int32_t> seen;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    params_.seed = seed;
    Init();
    seen.insert(Sample(flat, 5));
  }
  EXPECT_GT(seen.size(), 20u);
}

TEST_F(SamplerTest, TopKKeepsTheGreatestAndTiesGoToLowerIds) {
  params_.top_k = 2;
  EXPECT_EQ(Drawn({0, 1, 1, 1, 0.5f}), (std::set<int32_t>{1, 2}));
}

TEST_F(SamplerTest, TopPKeepsTheShortestPrefixThatHoldsTheMass) {
  const float ln2 = std::log(2.0f);
  const std::vector<float> logits = {0, 2 * ln2, ln2, 0};  // 1, 4, 2, 1 of 8
  params_.top_p = 0.5f;
  EXPECT_EQ(Drawn(logits), (std::set<int32_t>{1}));
  params_.top_p = 0.51f;
  Init();
  EXPECT_EQ(Drawn(logits), (std::set<int32_t>{1, 2}));
  params_.top_p = 0.8f;
  Init();
  EXPECT_EQ(Drawn(logits), (std::set<int32_t>{0, 1, 2}));
  params_.top_p = 1e-6f;
  Init();
  EXPECT_EQ(Drawn(logits), (std::set<int32_t>{1}));
}

TEST_F(SamplerTest, TopPMeasuresWhatTopKLeft) {
  const float ln2 = std::log(2.0f);
  params_.top_k = 2;  // leaves 4 and 2 of 6: 0.66 is the first alone
  params_.top_p = 0.66f;
  EXPECT_EQ(Drawn({0, 2 * ln2, ln2, 0}), (std::set<int32_t>{1}));
  params_.top_p = 0.67f;
  Init();
  EXPECT_EQ(Drawn({0, 2 * ln2, ln2, 0}), (std::set<int32_t>{1, 2}));
}

TEST_F(SamplerTest, MinPIsAShareOfTheGreatest) {
  const float ln2 = std::log(2.0f);
  params_.min_p = 0.4f;
  EXPECT_EQ(Drawn({0, 2 * ln2, ln2, 0}), (std::set<int32_t>{1, 2}));
}

// Top-p by buckets must equal top-p by sorting everything.
TEST_F(SamplerTest, TopPAgreesWithAFullSort) {
  std::vector<float> logits;
  uint64_t state = 3;
  for (int i = 0; i < 3000; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    logits.push_back(static_cast<float>(state >> 40) * 0x1p-24f * 12);
  }
  params_.top_p = 0.3f;
  std::vector<std::pair<double, int32_t>> sorted;
  double total = 0;
  for (int32_t i = 0; i < 3000; ++i) {
    sorted.emplace_back(-std::exp(double{logits[i]}), i);
    total += std::exp(double{logits[i]});
  }
  std::sort(sorted.begin(), sorted.end());
  std::set<int32_t> allowed;
  double mass = 0;
  for (const auto& [weight, id] : sorted) {
    allowed.insert(id);
    mass -= weight;
    if (mass >= 0.3 * total) break;
  }
  const std::set<int32_t> drawn = Drawn(logits);
  EXPECT_TRUE(std::includes(allowed.begin(), allowed.end(), drawn.begin(),
                            drawn.end()));
  EXPECT_GT(drawn.size(), allowed.size() / 2);
}

TEST_F(SamplerTest, TopKAgreesWithAFullSort) {
  std::vector<float> logits;
  uint64_t state = 5;
  for (int i = 0; i < 3000; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    logits.push_back(static_cast<float>(state >> 60) * 0.05f);  // many ties
  }
  params_.top_k = 40;
  std::vector<std::pair<float, int32_t>> sorted;
  for (int32_t i = 0; i < 3000; ++i) sorted.emplace_back(-logits[i], i);
  std::sort(sorted.begin(), sorted.end());
  std::set<int32_t> allowed;
  for (int i = 0; i < 40; ++i) allowed.insert(sorted[i].second);
  EXPECT_EQ(Drawn(logits), allowed);
}

TEST_F(SamplerTest, PenaltiesWorkOnWhatWasSeen) {
  params_.temperature = 0;
  params_.repetition_penalty = 2;
  prompt_ = {0};
  answer_ = {1};
  // 0: 4 / 2; 1: -1 * 2; 2 is untouched.
  EXPECT_EQ(Sample({4, -1, 2.5f}), 2);
  params_ = {};
  params_.temperature = 0;
  params_.presence_penalty = 1;
  Init();
  EXPECT_EQ(Sample({4, 4.5f, 3}), 0);  // only the answer counts
  params_.presence_penalty = 0;
  params_.frequency_penalty = 1;
  Init();
  EXPECT_EQ(Sample({3, 4.5f, 3}), 1);
  sampler_->Count(0, {1, 0});
  EXPECT_EQ(Sample({3, 4.5f, 3}), 0);
}

TEST_F(SamplerTest, DraftsCountAsIfTheyHadBeenDrawn) {
  std::mt19937 random(5);
  const auto uniform = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  constexpr int kVocab = 12;
  for (int i = 0; i < 300; ++i) {
    params_ = {};
    params_.temperature = i % 3 == 0 ? 0.0f : 1.0f;
    params_.seed = random();
    params_.repetition_penalty = i % 2 == 0 ? 1.0f : 1.5f;
    params_.presence_penalty = static_cast<float>(uniform(-1, 1));
    params_.frequency_penalty = static_cast<float>(uniform(-1, 1));
    params_.penalty_last_n = i % 5 == 0 ? uniform(1, 8) : 0;
    params_.dry_first = i % 7 == 0;
    params_.dry = {.multiplier = i % 4 == 0 ? 0.0f : 0.8f,
                   .allowed_length = i % 2};
    params_.stop_ids = {1, 2};
    params_.min_tokens = uniform(0, 6);
    params_.logprobs = true;
    params_.top_logprobs = 3;
    const auto ids = [&](int n) {
      std::vector<int32_t> result(static_cast<size_t>(n));
      for (int32_t& id : result) id = uniform(0, kVocab - 1);
      return result;
    };
    prompt_ = ids(uniform(1, 4));
    answer_ = ids(uniform(0, 4));
    const std::vector<int32_t> drawn = ids(uniform(1, 5));
    std::vector<float> logits(kVocab);
    for (float& x : logits) x = static_cast<float>(uniform(-30, 30)) / 10;

    Make(kVocab);
    Init();
    drafts_ = drawn;
    const Sampler::Drawn drafted = SampleDrawn(logits, 40);
    drafts_.clear();
    Init();
    for (const int32_t id : drawn) sampler_->Count(0, {id, 0});
    const Sampler::Drawn counted = SampleDrawn(logits, 40);
    EXPECT_EQ(drafted.id, counted.id);
    EXPECT_EQ(drafted.logprob, counted.logprob);
  }
}

TEST_F(SamplerTest, CountsComeBackFromTheAnswer) {
  params_.temperature = 0;
  params_.frequency_penalty = 1;
  answer_ = {1, 1};
  EXPECT_EQ(Sample({3, 4.5f, 3}), 0);
}

TEST_F(SamplerTest, BiasAndForbiddenStops) {
  params_.temperature = 0;
  params_.logit_bias = {{2, 5.0f}, {900, 1.0f}};
  params_.stop_ids = {2};
  params_.min_tokens = 1;
  EXPECT_EQ(Sample({1, 0, 0}), 0);  // forbidden in spite of its bias
  sampler_->Count(0, {0, 0});
  EXPECT_EQ(Sample({1, 0, 0}), 2);
}

TEST_F(SamplerTest, LogprobsAreOfTheUnchangedDistribution) {
  const float ln2 = std::log(2.0f);
  params_.temperature = 0;
  params_.logprobs = true;
  params_.top_logprobs = 2;
  params_.logit_bias = {{3, 100.0f}};
  const Sampler::Drawn drawn = SampleDrawn({0, 2 * ln2, ln2, 0});
  EXPECT_EQ(drawn.id, 3);
  EXPECT_NEAR(drawn.logprob, std::log(1.0 / 8), 1e-6);
  EXPECT_EQ(top_[0].id, 1);
  EXPECT_NEAR(top_[0].logprob, std::log(4.0 / 8), 1e-6);
  EXPECT_EQ(top_[1].id, 2);
  EXPECT_EQ(top_[2].id, -1);
}

TEST_F(SamplerTest, AScoredTokenIsNotDrawn) {
  params_.temperature = 0;
  const Sampler::Drawn drawn = SampleDrawn({0, 9, 0}, 0, 2);
  EXPECT_EQ(drawn.id, 2);
  EXPECT_NEAR(drawn.logprob, -std::log(std::exp(9.0) + 2), 1e-6);
}

TEST_F(SamplerTest, AMaskIsAsIfTheOtherLogitsWereMinusInfinity) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal(0, 3);
  constexpr int32_t kVocab = 77;
  for (int i = 0; i < 400; ++i) {
    params_ = {};
    params_.temperature = i % 3 == 0 ? 0.0f : 1.0f;
    params_.top_k = i % 2 == 0 ? 0 : 5;
    params_.top_p = i % 5 == 0 ? 0.8f : 1.0f;
    params_.seed = random();
    params_.logprobs = true;
    sampler_.reset();
    std::vector<float> logits(kVocab);
    for (float& x : logits) x = normal(random);
    std::vector<float> forbidden = logits;
    std::vector<uint32_t> mask(TokenMaskWords(kVocab), 0);
    for (int32_t id = 0; id < kVocab; ++id) {
      if (id == i % kVocab || random() % 4 == 0) {
        mask[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
      } else {
        forbidden[id] = -INFINITY;
      }
    }
    mask_ = mask;
    const Sampler::Drawn masked = SampleDrawn(logits, i);
    EXPECT_TRUE(IsAllowed(mask, masked.id));
    mask_.clear();
    EXPECT_EQ(masked.id, Sample(forbidden, i));
    // Log-probabilities are those of the model, before any rule.
    EXPECT_EQ(masked.logprob, SampleDrawn(logits, 0, masked.id).logprob);
  }
}

TEST_F(SamplerTest, AnAllowedTokenIsDrawnThoughOtherRulesForbidAll) {
  params_.stop_ids = {2};
  params_.min_tokens = 5;
  mask_ = {1u << 2};
  EXPECT_EQ(Sample({9, 8, 1, 7}), 2);
  params_.temperature = 0;
  Init();
  EXPECT_EQ(Sample({9, 8, 1, 7}), 2);
}

TEST_F(SamplerTest, MasksOfDraftTokensAreThoseOfDrawnOnes) {
  constexpr int32_t kVocab = 40;
  params_.bad_words = {{1, 2}, {2, 3}, {3, 3, 4}};
  answer_ = {7, 1};  // as after a preemption
  Make(kVocab);
  EXPECT_TRUE(sampler_->NeedsMasks(0));
  const size_t words = sampler_->mask_words();
  ASSERT_EQ(words, 2u);
  const std::vector<int32_t> drafts = {3, 3, 4, 5};
  std::vector<uint32_t> masks(5 * words);
  sampler_->FillMasks(0, drafts, masks);
  std::vector<std::vector<uint32_t>> one_by_one;
  for (size_t i = 0; i < 3; ++i) {
    std::vector<uint32_t> mask(words);
    sampler_->FillMasks(0, {}, mask);
    EXPECT_TRUE(std::equal(mask.begin(), mask.end(),
                           masks.begin() + static_cast<long>(i * words)))
        << "row " << i;
    one_by_one.push_back(mask);
    sampler_->Count(0, {drafts[i], 0});
  }
  EXPECT_FALSE(IsAllowed(one_by_one[0], 2));
  EXPECT_TRUE(IsAllowed(one_by_one[1], 2));
  EXPECT_FALSE(IsAllowed(one_by_one[2], 4)) << "the third draft is refused";
  // Behind it nothing can count: all is allowed.
  EXPECT_EQ(masks[3 * words], ~0u);
  EXPECT_EQ(masks[3 * words + 1], 0xffu);
}

}  // namespace
}  // namespace millrace::models
