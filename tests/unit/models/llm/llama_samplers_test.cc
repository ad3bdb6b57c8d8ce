// The samplers that only llama.cpp has, and the order in which they act.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>
#include <vector>

#include "models/llm/sampler.h"
#include "tests/unit/models/llm/sampler_fixture.h"

namespace millrace::models {
namespace {

TEST_F(SamplerTest, DryComesBeforeGreedyAndRemembersTheText) {
  params_.temperature = 0;
  params_.dry = {.multiplier = 2, .allowed_length = 2};
  prompt_ = {0, 1, 2};
  answer_ = {0, 1};
  // 2 came next after 0 1: its 3 becomes 1.
  EXPECT_EQ(Sample({0, 0, 3, 2}), 3);
  sampler_->Count(0, {3, 0});
  EXPECT_EQ(Sample({0, 0, 3, 2}), 2);
}

// With a cut that keeps one token, which tokens are possible shows the order.
TEST_F(SamplerTest, LlamaSamplersSeeProbabilitiesBeforeTemperature) {
  const float ln2 = std::log(2.0f);
  const std::vector<float> logits = {3 * ln2, 2 * ln2, ln2, 0};  // 8, 4, 2, 1
  params_.temperature = 100;                                     // all but even
  params_.top_p = 0.5f;  // 8 of 15 hold it
  EXPECT_GT(Drawn(logits).size(), 1u) << "vLLM's order";
  params_.top_n_sigma = 50;  // cuts nothing
  Init();
  EXPECT_EQ(Drawn(logits), (std::set<int32_t>{0})) << "llama.cpp's order";
}

TEST_F(SamplerTest, ARequestMayChooseTheOrder) {
  const float ln2 = std::log(2.0f);
  const std::vector<float> logits = {3 * ln2, 2 * ln2, ln2, 0};  // 8, 4, 2, 1
  params_.temperature = 100;
  params_.top_p = 0.5f;
  using enum DrawStage;
  params_.order = {kTopP, kTemperature};
  EXPECT_EQ(Drawn(logits), (std::set<int32_t>{0}));
  params_.order = {kTemperature, kTopP};  // two of four all but even ones
  Init();
  EXPECT_EQ(Drawn(logits), (std::set<int32_t>{0, 1}));
  // What is not named has no effect.
  params_.top_k = 1;
  params_.top_p = 0.01f;
  params_.order = {kTemperature};
  Init();
  EXPECT_EQ(Drawn(logits).size(), 4u);
  // top-k before XTC leaves nothing to drop; behind it, it takes the second.
  params_.temperature = 1;
  params_.xtc_probability = 1;
  params_.xtc_threshold = 0.2f;
  params_.order = {kTopK, kXtc};
  Init();
  EXPECT_EQ(Drawn(logits), (std::set<int32_t>{0}));
  params_.order = {kXtc, kTopK};
  Init();
  EXPECT_EQ(Drawn(logits), (std::set<int32_t>{1}));
}

TEST_F(SamplerTest, TheUsualOrderMayBeSaid) {
  std::mt19937 random(9);
  std::normal_distribution<float> normal(0, 3);
  params_.temperature = 0.8f;
  params_.top_k = 20;
  params_.top_p = 0.9f;
  params_.typical_p = 0.95f;
  params_.xtc_probability = 0.5f;
  Make(60);
  for (int32_t position = 0; position < 200; ++position) {
    std::vector<float> logits(60);
    for (float& x : logits) x = normal(random);
    params_.order = {};
    Init();
    const int32_t usual = Sample(logits, position);
    using enum DrawStage;
    params_.order = {kTopNSigma, kTopK, kTypical,    kTopP,
                     kMinP,      kXtc,  kTemperature};
    Init();
    EXPECT_EQ(Sample(logits, position), usual);
  }
}

TEST_F(SamplerTest, DryMayComeBeforeThePenalties) {
  params_.temperature = 0;
  params_.dry = {.multiplier = 2, .allowed_length = 2};
  params_.repetition_penalty = 2;
  prompt_ = {0, 1, 2};
  answer_ = {0, 1};
  // Token 2, whose logit is 5: 5 / 2 - 2 = 0.5, or (5 - 2) / 2 = 1.5.
  EXPECT_EQ(Sample({0, 0, 5, 1}), 3);
  params_.dry_first = true;
  Init();
  EXPECT_EQ(Sample({0, 0, 5, 1}), 2);
}

TEST_F(SamplerTest, MinKeepIsOfLlamaSamplers) {
  const float ln2 = std::log(2.0f);
  params_.top_p = 0.1f;
  params_.min_keep = 2;
  EXPECT_EQ(Drawn({0, 3 * ln2, 2 * ln2, ln2}), (std::set<int32_t>{1, 2}));
}

TEST_F(SamplerTest, XtcActsOnItsShareOfDraws) {
  const float ln2 = std::log(2.0f);
  params_.xtc_probability = 0.25f;
  params_.xtc_threshold = 0.2f;
  // 4, 2, 1, 1 of 8: a quarter of the draws lack the first token, and then the
  // second has half of what is left.
  const auto shares = Shares({2 * ln2, ln2, 0, 0});
  EXPECT_NEAR(shares.at(0), 0.75 * 0.5, 0.018);
  EXPECT_NEAR(shares.at(1), 0.75 * 0.25 + 0.25 * 0.5, 0.018);
}

TEST_F(SamplerTest, ARangeOfTemperaturesFollowsTheEntropy) {
  // Even: the greatest temperature, which changes nothing; all but certain:
  // the least, 0.
  params_.dynatemp_range = 1;
  EXPECT_EQ(Drawn({0, 0, 0, 0}).size(), 4u);
  const float ln2 = std::log(2.0f);
  sampler_.reset();  // the next has a vocabulary of two
  // 2 and 1 of 3: entropy 0.918 bits of 1, temperature 1.837.
  const auto shares = Shares({ln2, 0});
  const double weight = std::pow(2.0, 1 / (2 * 0.9182958));
  EXPECT_NEAR(shares.at(0), weight / (weight + 1), 0.018);
}

// Source: algorithm 1 of the paper, in its second version as llama.cpp has it.
TEST_F(SamplerTest, MirostatFollowsItsOwnDraws) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 2);
  constexpr int32_t kVocab = 50;
  params_.mirostat = {.on = true, .tau = 2, .eta = 0.3f};
  params_.temperature = 0.7f;
  params_.top_k = 1;  // without effect
  Make(kVocab);
  double mu = 2 * 2.0;
  float known_mu = 0;
  std::set<int32_t> ids;
  for (int32_t position = 0; position < 200; ++position) {
    std::vector<float> logits(kVocab);
    for (float& x : logits) x = normal(random);
    double sum = 0;
    for (const float x : logits) sum += std::exp(x / 0.7);
    const auto p = [&](int32_t id) { return std::exp(logits[id] / 0.7) / sum; };
    double kept = 0;
    for (int32_t id = 0; id < kVocab; ++id) {
      if (-std::log2(p(id)) <= mu) kept += p(id);
    }
    const Sampler::Drawn drawn = SampleDrawn(logits, position);
    ids.insert(drawn.id);
    const double surprise = kept == 0 ? 0 : -std::log2(p(drawn.id) / kept);
    if (kept > 0) {
      EXPECT_LE(-std::log2(p(drawn.id)), mu + 1e-4);
    }
    mu -= 0.3 * (surprise - 2);
    // 200 steps of float arithmetic on values below 10.
    EXPECT_NEAR(drawn.mirostat_mu, mu, 1e-3) << "position " << position;
    if (position == 100) {
      // As after a preemption: the slot is made again from what was drawn.
      sampler_->InitSlot({.slot = 0,
                          .sampling = &params_,
                          .prompt = {},
                          .output = {},
                          .mirostat_mu = drawn.mirostat_mu});
    } else {
      sampler_->Count(0, drawn);
    }
    known_mu = drawn.mirostat_mu;
  }
  EXPECT_NE(known_mu, 4.0f);
  EXPECT_GT(ids.size(), 5u);
}

TEST_F(SamplerTest, MirostatsFirstVersionKeepsTheFirstTokens) {
  params_.mirostat = {.on = true, .tau = 3, .eta = 0.1f, .version = 1};
  // Logits -2 ln(rank): with mu = 2 tau 2^mu is 64, and k is
  // (64 / (1 - 1/50))^(1/2), 8.08.
  std::vector<float> logits;
  for (int rank = 1; rank <= 50; ++rank) {
    logits.push_back(-2 * std::log(static_cast<float>(rank)));
  }
  EXPECT_EQ(Drawn(logits), (std::set<int32_t>{0, 1, 2, 3, 4, 5, 6, 7}));
  const Sampler::Drawn drawn = SampleDrawn(logits, 3);
  double sum = 0;
  for (int rank = 1; rank <= 8; ++rank) sum += 1.0 / (rank * rank);
  const double rank = drawn.id + 1;
  const double surprise = -std::log2(1 / (rank * rank) / sum);
  EXPECT_NEAR(drawn.mirostat_mu, 6 - 0.1 * (surprise - 3), 1e-5);
}

}  // namespace
}  // namespace millrace::models
