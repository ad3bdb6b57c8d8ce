// Draws on the device beside the sampler of the host, from the same logits.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "models/cpu/llm_kernels.h"
#include "models/llm/sampler.h"
#include "tests/cuda_emulation/device_array.h"
#include "tests/cuda_emulation/kernel_inputs.h"

namespace millrace::cuda {
namespace {

using models::SamplingParams;

DrawRow RowOfDraw(const models::Sampler::PlainDraw& draw) {
  return {.inverse_temperature = draw.inverse_temperature,
          .top_k = draw.top_k,
          .top_p = draw.top_p,
          .min_p = draw.min_p,
          .random_low = static_cast<uint32_t>(draw.random),
          .random_high = static_cast<uint32_t>(draw.random >> 32)};
}

// Ids drawn from rows of logits; `greatest` are those of the greatest.
std::vector<int32_t> DrawOnDevice(const std::vector<float>& logits,
                                  int32_t vocab,
                                  const std::vector<DrawRow>& draws,
                                  const std::vector<int32_t>& greatest) {
  DeviceArray<float> rows(logits);
  DeviceArray<DrawRow> how(draws);
  DeviceArray<int32_t> ids(greatest);
  EXPECT_EQ(DrawTokens(nullptr, {.logits = rows.get(),
                                 .pitch = vocab,
                                 .vocab = vocab,
                                 .rows = static_cast<int32_t>(draws.size()),
                                 .draws = how.get(),
                                 .ids = ids.get()}),
            0);
  return ids.Read();
}

// Settings alone and together, of logits with and without many equal ones. A
// row of 1,300 has more tokens than a block has threads, one of 5,000 more than
// shared memory lists.
TEST(Draws, AreThoseOfTheHost) {
  std::vector<SamplingParams> all(9);
  all[1].temperature = 0.3f;
  all[2].top_k = 5;
  all[3].top_p = 0.8f;
  all[4].min_p = 0.2f;
  all[5].top_k = 40, all[5].top_p = 0.7f, all[5].min_p = 0.05f;
  all[6].top_k = 1;
  all[7].top_p = 1e-6f;
  all[8].temperature = 5, all[8].top_p = 0.999f, all[8].top_k = 100000;
  std::set<int32_t> seen;
  for (const int32_t vocab : {70, 1300, 5000}) {
    models::Sampler sampler(*models::ScalarKernels(), vocab, 1);
    models::Sampler::Scratch scratch;
    for (const bool ties : {false, true}) {
      for (SamplingParams& params : all) {
        std::vector<float> logits;
        std::vector<DrawRow> draws;
        std::vector<int32_t> greatest, want;
        for (int32_t i = 0; i < (vocab == 70 ? 10 : 1); ++i) {
          params.seed = static_cast<uint64_t>(i) << 40 | 77;
          sampler.InitSlot(
              {.slot = 0, .sampling = &params, .prompt = {}, .output = {}});
          auto row = Random(static_cast<size_t>(vocab),
                            static_cast<uint64_t>(100 + i));
          for (float& logit : row) {
            logit = ties ? std::round(2 * logit) : 8 * logit;
          }
          logits.insert(logits.end(), row.begin(), row.end());
          greatest.push_back(static_cast<int32_t>(
              std::max_element(row.begin(), row.end()) - row.begin()));
          const auto draw = sampler.PlainDrawOf(0, i);
          ASSERT_TRUE(draw.has_value());
          draws.push_back(RowOfDraw(*draw));
          std::vector<models::TokenLogprob> top(models::kMaxTopLogprobs);
          want.push_back(
              sampler.Sample(0, i, models::kSample, {}, row, top, scratch).id);
        }
        EXPECT_EQ(DrawOnDevice(logits, vocab, draws, greatest), want)
            << vocab << " " << ties << " " << &params - all.data();
        seen.insert(want.begin(), want.end());
      }
    }
  }
  EXPECT_GT(seen.size(), 50u) << "draws that do not differ prove little";
}

TEST(Draws, GreedyRowsAndRowsWithoutAFiniteGreatestKeepTheirId) {
  const int32_t vocab = 40;
  std::vector<float> logits(3 * vocab, 1);
  logits[vocab + 7] = std::numeric_limits<float>::infinity();
  for (size_t i = 2 * vocab; i < logits.size(); ++i) {
    logits[i] = std::numeric_limits<float>::quiet_NaN();
  }
  const DrawRow hot = {.inverse_temperature = 1, .random_high = 1u << 31};
  EXPECT_EQ(DrawOnDevice(logits, vocab, {DrawRow{}, hot, hot}, {3, 7, 0}),
            (std::vector<int32_t>{3, 7, 0}));
}

TEST(Draws, WhatNeedsMoreThanLogitsIsNoPlainDraw) {
  models::Sampler sampler(*models::ScalarKernels(), 50, 1);
  const auto is_plain = [&](auto change) {
    SamplingParams params;
    change(params);
    sampler.InitSlot(
        {.slot = 0, .sampling = &params, .prompt = {}, .output = {}});
    return sampler.PlainDrawOf(0, 3).has_value();
  };
  EXPECT_TRUE(is_plain([](SamplingParams&) {}));
  EXPECT_FALSE(is_plain([](SamplingParams& p) { p.temperature = 0; }));
  EXPECT_FALSE(is_plain([](SamplingParams& p) { p.logprobs = true; }));
  EXPECT_FALSE(is_plain([](SamplingParams& p) { p.presence_penalty = 1; }));
  EXPECT_FALSE(is_plain([](SamplingParams& p) { p.typical_p = 0.5f; }));
  EXPECT_FALSE(is_plain([](SamplingParams& p) { p.mirostat.on = true; }));
  EXPECT_FALSE(is_plain([](SamplingParams& p) { p.dry.multiplier = 1; }));
  EXPECT_FALSE(is_plain([](SamplingParams& p) { p.min_tokens = 2; }));
  EXPECT_FALSE(is_plain([](SamplingParams& p) { p.logit_bias = {{1, 2}}; }));
  EXPECT_FALSE(is_plain([](SamplingParams& p) { p.suppress_tokens = {4}; }));
}

}  // namespace
}  // namespace millrace::cuda
