// The penalties against a plain implementation that counts the whole text anew
// for each token.
#include "models/llm/penalties.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

namespace millrace::models {
namespace {

using Ids = std::vector<int32_t>;
using Raw = std::vector<std::pair<int32_t, float>>;

std::vector<float> Plain(const SamplingParams& params, const Ids& prompt,
                         const Ids& output, std::vector<float> logits) {
  Ids all = prompt;
  all.insert(all.end(), output.begin(), output.end());
  Ids counted = output;  // by presence and frequency
  if (params.penalty_last_n > 0) {
    const auto last_n = static_cast<size_t>(params.penalty_last_n);
    if (all.size() > last_n) all.erase(all.begin(), all.end() - last_n);
    counted = all;
  }
  for (const int32_t id : std::set<int32_t>(all.begin(), all.end())) {
    float& x = logits[static_cast<size_t>(id)];
    if (params.repetition_penalty != 1) {
      x = x > 0 ? x / params.repetition_penalty : x * params.repetition_penalty;
    }
    const auto times = std::ranges::count(counted, id);
    if (times > 0) {
      x -= params.presence_penalty;
      x -= params.frequency_penalty * static_cast<float>(times);
    }
  }
  return logits;
}

class PenaltiesTest : public testing::Test {
 protected:
  static constexpr int kVocab = 8;

  int Uniform(int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random_);
  }
  Ids Tokens(int n) {
    Ids ids(static_cast<size_t>(n));
    for (int32_t& id : ids) id = Uniform(0, kVocab - 1);
    return ids;
  }
  SamplingParams Params() {
    SamplingParams params;
    params.repetition_penalty = Uniform(0, 1) == 0 ? 1.0f : 1.5f;
    params.presence_penalty = static_cast<float>(Uniform(-1, 1));
    params.frequency_penalty = static_cast<float>(Uniform(1, 3)) / 4;
    const int kind = Uniform(0, 5);
    params.penalty_last_n = kind == 0   ? 0
                            : kind == 1 ? INT32_MAX
                                        : Uniform(1, 12);
    return params;
  }
  std::vector<float> Logits() {
    std::vector<float> logits(kVocab);
    for (float& x : logits) x = static_cast<float>(Uniform(-30, 30)) / 10;
    return logits;
  }
  static std::vector<float> Apply(const Penalties& penalties, const Ids& drafts,
                                  std::vector<float> logits) {
    Raw raw;
    penalties.Apply(drafts, logits, raw);
    return logits;
  }

  std::mt19937 random_{7};
};

TEST_F(PenaltiesTest, FollowTheTextAsThePlainOnesDo) {
  for (int i = 0; i < 400; ++i) {
    const SamplingParams params = Params();
    const Ids prompt = Tokens(Uniform(1, 20));
    Ids output;
    Penalties penalties;
    penalties.Reset(params, prompt, output);
    for (int step = 0; step < 25; ++step) {
      const std::vector<float> logits = Logits();
      ASSERT_EQ(Apply(penalties, {}, logits),
                Plain(params, prompt, output, logits))
          << "last_n " << params.penalty_last_n << " step " << step;
      output.push_back(Uniform(0, kVocab - 1));
      penalties.Count(output.back());
    }
    // As after a preemption.
    Penalties again;
    again.Reset(params, prompt, output);
    const std::vector<float> logits = Logits();
    EXPECT_EQ(Apply(again, {}, logits), Apply(penalties, {}, logits));
  }
}

TEST_F(PenaltiesTest, DraftsPushTokensOutOfTheWindow) {
  for (int i = 0; i < 2000; ++i) {
    const SamplingParams params = Params();
    const Ids prompt = Tokens(Uniform(1, 10));
    Ids output = Tokens(Uniform(0, 6));
    Penalties penalties;
    penalties.Reset(params, prompt, output);
    const Ids drafts = Tokens(Uniform(1, 14));  // also more than the window
    const std::vector<float> logits = Logits();
    const std::vector<float> drafted = Apply(penalties, drafts, logits);
    output.insert(output.end(), drafts.begin(), drafts.end());
    ASSERT_EQ(drafted, Plain(params, prompt, output, logits))
        << "last_n " << params.penalty_last_n;
  }
}

TEST_F(PenaltiesTest, AWindowHoldsThePromptsEnd) {
  SamplingParams params;
  params.presence_penalty = 1;
  params.frequency_penalty = 0.5f;
  params.penalty_last_n = 3;
  Penalties penalties;
  const Ids prompt = {0, 1, 1};
  penalties.Reset(params, prompt, {});
  const std::vector<float> flat(4, 0.0f);
  EXPECT_EQ(Apply(penalties, {}, flat), (std::vector<float>{-1.5f, -2, 0, 0}));
  penalties.Count(2);  // 1 1 2
  EXPECT_EQ(Apply(penalties, {}, flat), (std::vector<float>{0, -2, -1.5f, 0}));
  EXPECT_EQ(Apply(penalties, Ids{3, 3}, flat),  // 2 3 3
            (std::vector<float>{0, 0, -1.5f, -2}));
  // Without a window the prompt does not count for these two.
  params.penalty_last_n = 0;
  penalties.Reset(params, prompt, {});
  EXPECT_EQ(Apply(penalties, {}, flat), flat);
}

TEST_F(PenaltiesTest, WhatIsChangedIsRemembered) {
  SamplingParams params;
  params.repetition_penalty = 2;
  params.penalty_last_n = 1;
  Penalties penalties;
  penalties.Reset(params, Ids{9, 1}, {});
  std::vector<float> logits = {1, 4};
  Raw raw;
  penalties.Apply({}, logits, raw);
  EXPECT_EQ(logits, (std::vector<float>{1, 2}));
  EXPECT_EQ(raw, (Raw{{1, 4.0f}}));
  penalties.Count(9);  // none of the logits
  penalties.Apply({}, logits, raw);
  EXPECT_EQ(logits, (std::vector<float>{1, 2}));
}

}  // namespace
}  // namespace millrace::models
