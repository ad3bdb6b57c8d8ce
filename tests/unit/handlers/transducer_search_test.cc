// The search of a recogniser by numbers that can be checked by hand, and what
// it keeps of a session.
#include "handlers/transducer/transducer_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "handlers/transducer/transducer_state.h"
#include "models/tensor/tensor.h"

namespace millrace::handlers {
namespace {

using models::DType;
using models::Tensor;
using ::testing::ElementsAre;

// ---- the search -------------------------------------------------------------

std::vector<int> Ids(const Hypothesis& hypothesis) {
  std::vector<int> ids;
  for (const auto& token : hypothesis.tokens) ids.push_back(token.id);
  return ids;
}

// Tokens 0 and 1, and 2 as the blank; what is the most probable depends on the
// frame and on the token before, which is in the prediction.
std::vector<float> Probabilities(size_t frame, float before) {
  if (frame == 0 && before == 2) return {0.5F, 0.2F, 0.3F};
  if (frame == 0) return {0.1F, 0.3F, 0.6F};
  return {0.2F, 0.5F, 0.3F};
}

std::vector<Hypothesis> Search(const TransducerOptions& options,
                               size_t num_frames) {
  TransducerSearch search(options, {}, num_frames);
  while (search.wants() != TransducerSearch::Want::kNothing) {
    if (search.wants() == TransducerSearch::Want::kPredictions) {
      std::vector<std::shared_ptr<const Prediction>> made;
      for (const auto& ask : search.asks()) {
        made.push_back(std::make_shared<Prediction>(
            Prediction{{static_cast<float>(ask.token)}, {}}));
      }
      search.GivePredictions(std::move(made));
      continue;
    }
    std::vector<float> logits;
    for (const Hypothesis& each : search.alive()) {
      for (const float p :
           Probabilities(search.frame(), each.prediction->encoding[0])) {
        logits.push_back(std::log(p));
      }
    }
    EXPECT_TRUE(search.GiveLogits(logits).ok());
  }
  return search.Take();
}

TEST(TransducerSearch, GreedyTakesTheBestTokenUntilTheBlank) {
  const auto found = Search(
      {.num_tokens = 3, .blank = 2, .greedy = true, .max_symbols = 2}, 2);
  ASSERT_EQ(found.size(), 1U);
  // Frame 0: token 0, then the blank. Frame 1: token 1 for as long as it may.
  EXPECT_THAT(Ids(found[0]), ElementsAre(0, 1, 1));
  EXPECT_EQ(found[0].tokens[0].frame, 0);
  EXPECT_EQ(found[0].tokens[2].frame, 1);
  EXPECT_NEAR(found[0].score, std::log(0.5 * 0.6 * 0.5 * 0.5 * 0.3), 1e-6);
}

TEST(TransducerSearch, BeamKeepsSeveralTextsBestFirst) {
  const auto found = Search({.num_tokens = 3,
                             .blank = 2,
                             .greedy = false,
                             .beam_width = 2,
                             .max_symbols = 1},
                            1);
  ASSERT_EQ(found.size(), 2U);
  // "" has 0.3 and counts 2 (log 0.3 / 2), "0" has 0.5 * 0.6 and counts 3.
  EXPECT_THAT(Ids(found[0]), ElementsAre(0));
  EXPECT_NEAR(found[0].score, std::log(0.5 * 0.6), 1e-6);
  EXPECT_TRUE(found[1].tokens.empty());
  EXPECT_NEAR(found[1].score, std::log(0.3), 1e-6);
}

TEST(TransducerSearch, ScoresThatAreNoNumbersAreAnError) {
  TransducerSearch search({.num_tokens = 2, .blank = 1}, {}, 1);
  search.GivePredictions({std::make_shared<Prediction>()});
  const std::vector<float> logits = {std::nanf(""), 0};
  EXPECT_EQ(search.GiveLogits(logits).code(), StatusCode::kInternal);
}

// ---- what a session keeps ---------------------------------------------------

TransducerState SmallState() {
  TransducerState state = {.num_samples = 5, .num_frames = 8};
  state.samples = {0.5F, -0.25F};
  const std::vector<float> values = {1, 2, 3};
  state.encoder.push_back(Tensor::From<float>(DType::kF32, {3, 1}, values));
  state.encoder.push_back(Tensor::Int64s(std::vector<int64_t>{7}));
  Hypothesis& one = state.hypotheses.emplace_back();
  one.tokens = {{4, 1}, {2, 6}};
  one.score = -3.5;
  one.prediction = std::make_shared<Prediction>(
      Prediction{.encoding = {9}, .states = {{1, 2}, {3}}});
  return state;
}

TEST(TransducerState, IsReadAsItWasWritten) {
  const auto read = ReadState(WriteState(SmallState()));
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->num_samples, 5);
  EXPECT_EQ(read->num_frames, 8);
  EXPECT_THAT(read->samples, ElementsAre(0.5F, -0.25F));
  ASSERT_EQ(read->encoder.size(), 2U);
  EXPECT_EQ(read->encoder[0].shape().ToString(), "[3, 1]");
  EXPECT_EQ(read->encoder[0].data<float>()[2], 3);
  EXPECT_EQ(*read->encoder[1].data<int64_t>(), 7);
  ASSERT_EQ(read->hypotheses.size(), 1U);
  const Hypothesis& one = read->hypotheses[0];
  EXPECT_THAT(Ids(one), ElementsAre(4, 2));
  EXPECT_EQ(one.tokens[1].frame, 6);
  EXPECT_EQ(one.score, -3.5);
  EXPECT_THAT(one.prediction->encoding, ElementsAre(9));
  EXPECT_THAT(one.prediction->states,
              ElementsAre(ElementsAre(1, 2), ElementsAre(3)));
}

TEST(TransducerState, CutAnywhereIsAnError) {
  const Tensor whole = WriteState(SmallState());
  for (int64_t size = 2; size < whole.num_bytes(); ++size) {
    const Tensor cut = Tensor::From<std::byte>(
        DType::kU8, {size},
        std::span(whole.bytes(), static_cast<size_t>(size)));
    EXPECT_EQ(ReadState(cut).status().code(), StatusCode::kInternal) << size;
  }
}

}  // namespace
}  // namespace millrace::handlers
