// Probabilities after sampling, of four tokens whose numbers are easy.
#include "server/http/sampled_probabilities.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace millrace::server::http {
namespace {

// Tokens 1 to 4 with probabilities 0.4, 0.3, 0.2 and 0.1; the third is drawn.
handlers::TokenLogprobs Four() {
  handlers::TokenLogprobs token;
  const double probabilities[] = {0.4, 0.3, 0.2, 0.1};
  for (int32_t i = 0; i < 4; ++i) {
    token.top.push_back(
        {i + 1, "t", static_cast<float>(std::log(probabilities[i]))});
  }
  token.chosen = token.top[2];
  return token;
}

// "id:percent" of each candidate.
std::string Told(const handlers::GenerateOptions& options, int shown = 4) {
  const auto made = SampledProbabilities::Create(options, {}, shown);
  if (!made.ok()) return std::string(made.status().field());
  std::string text;
  for (const SampledProbability& each : made->Top(Four())) {
    text += std::to_string(each.token.id) + ":" +
            std::to_string(std::lround(100 * each.probability)) + " ";
  }
  return text + "drew " +
         std::to_string(std::lround(100 * made->OfChosen(Four())));
}

TEST(SampledProbabilities, NothingIsCut) {
  EXPECT_EQ(Told({}), "1:40 2:30 3:20 4:10 drew 20");
  EXPECT_EQ(Told({}, 2), "1:40 2:30 drew 20");
  // More cannot be known from a few log-probabilities.
  EXPECT_EQ(Told({.temperature = 0.5}), "post_sampling_probs");
  EXPECT_EQ(Told({.top_p = 0.5}), "post_sampling_probs");
  EXPECT_EQ(Told({.top_k = 21}), "post_sampling_probs");
  EXPECT_EQ(Told({.repetition_penalty = 1.1}), "post_sampling_probs");
  EXPECT_EQ(Told({.top_k = 3, .typical_p = 0.5}), "post_sampling_probs");
  TextFacts model;
  model.default_sampling.top_p = 0.5;
  EXPECT_FALSE(SampledProbabilities::Create({}, model, 4).ok());
}

TEST(SampledProbabilities, GreedyDrawsOne) {
  EXPECT_EQ(Told({.temperature = 0}), "3:100 drew 100");
  EXPECT_EQ(Told({.top_k = 1, .repetition_penalty = 1.1}), "3:100 drew 100");
  // Mirostat looks at no top_k.
  EXPECT_EQ(Told({.top_k = 1, .mirostat = 2}), "post_sampling_probs");
}

TEST(SampledProbabilities, AnOrderOfItsOwnIsNotTold) {
  using enum models::DrawStage;
  // Cuts by the model's own probabilities: 4 and 3 of 9 hold 0.6.
  EXPECT_EQ(Told({.temperature = 0.5,
                  .top_k = 3,
                  .top_p = 0.6,
                  .sampler_order = {kTopK, kTopP, kTemperature}}),
            "1:64 2:36 drew 0");
  EXPECT_EQ(Told({.top_k = 3, .sampler_order = {kTemperature, kTopK}}),
            "post_sampling_probs");
  EXPECT_EQ(Told({.top_k = 3, .min_keep = 2}), "post_sampling_probs");
}

TEST(SampledProbabilities, CandidatesAreCutInTheSamplersOrder) {
  EXPECT_EQ(Told({.top_k = 3}), "1:44 2:33 3:22 drew 22");
  // Squares of 4, 3, 2: 16, 9, 4.
  EXPECT_EQ(Told({.temperature = 0.5, .top_k = 3}), "1:55 2:31 3:14 drew 14");
  // The temperature first: 16 of 29 are 0.55, two hold 0.6.
  EXPECT_EQ(Told({.temperature = 0.5, .top_k = 3, .top_p = 0.6}),
            "1:64 2:36 drew 0");
  // 4 of 16 is 0.25 of the best, 2 of 4 is half of it.
  EXPECT_EQ(Told({.temperature = 0.5, .top_k = 3, .min_p = 0.4}),
            "1:64 2:36 drew 0");
  // llama.cpp's order: cuts by the model's own probabilities.
  EXPECT_EQ(Told({.temperature = 0.5,
                  .top_k = 3,
                  .min_p = 0.4,
                  .xtc_probability = 1,
                  .xtc_threshold = 1}),
            "1:55 2:31 3:14 drew 14");
}

}  // namespace
}  // namespace millrace::server::http
