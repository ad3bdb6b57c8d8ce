#include "scheduler/step_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "models/llm/runner_ahead.h"
#include "scheduler/policy.h"

namespace millrace::scheduler {
namespace {

using models::kNoPage;
using models::kSample;
using models::PageId;
using ::testing::ElementsAre;

template <typename T>
std::vector<T> First(std::span<T> values, int32_t n) {
  return {values.begin(), values.begin() + n};
}

TEST(StepBuilder, WritesTheDrawingOfTheContract) {
  models::StepBatch batch({.max_tokens = 8,
                           .max_seqs = 4,
                           .max_pages_per_seq = 2,
                           .max_samples = 8});
  Sequence a;
  a.tokens = {10, 11, 12, 13, 14};
  a.num_prompt = 3;
  a.num_computed = 4;
  a.slot = 7;
  a.tables[0].pages = {PageId{5}};
  Sequence b;
  b.tokens = {20, 21, 22, 23, 24, 25};
  b.num_prompt = 6;
  b.slot = 2;
  b.tables[0].pages = {PageId{1}, PageId{3}};

  StepBuilder builder(batch);
  EXPECT_EQ(builder.Add(a, 1), 0);
  EXPECT_EQ(builder.Add(b, 4), 1);
  EXPECT_EQ(batch.num_tokens, 5);
  EXPECT_EQ(batch.num_seqs, 2);
  EXPECT_EQ(batch.num_copies, 0);
  EXPECT_THAT(First(batch.tokens(), 5), ElementsAre(14, 20, 21, 22, 23));
  EXPECT_THAT(First(batch.positions(), 5), ElementsAre(4, 0, 1, 2, 3));
  EXPECT_THAT(First(batch.q_start(), 3), ElementsAre(0, 1, 5));
  EXPECT_THAT(First(batch.kv_len(), 2), ElementsAre(5, 4));
  EXPECT_THAT(First(batch.slot(), 2), ElementsAre(7, 2));
  EXPECT_THAT(batch.pages(0), ElementsAre(PageId{5}, kNoPage));
  EXPECT_THAT(batch.pages(1), ElementsAre(PageId{1}, PageId{3}));
  // The chunk of b does not reach its last known token: it does not sample.
  ASSERT_EQ(batch.num_samples, 1);
  EXPECT_EQ(batch.sample_rows()[0], 0);
  EXPECT_EQ(batch.sample_seqs()[0], 0);
  EXPECT_EQ(batch.score_ids()[0], kSample);
}

TEST(StepBuilder, ATokenThatAStepInFlightDrawsIsNamedByItsSample) {
  models::StepBatch batch({.max_tokens = 8,
                           .max_seqs = 2,
                           .max_pages_per_seq = 1,
                           .max_samples = 8});
  Sequence a;
  a.tokens = {10, 11, 12, 13, 14};
  a.num_prompt = 3;
  a.max_output = 4;
  a.num_computed = 4;
  a.rows_in_flight = 1;
  a.drawn_by = 6;
  a.slot = 0;
  a.tables[0].pages = {PageId{0}};
  // A prompt of which two tokens are in flight.
  Sequence b;
  b.tokens = {20, 21, 22, 23, 24};
  b.num_prompt = 5;
  b.rows_in_flight = 2;
  b.slot = 1;
  b.tables[0].pages = {PageId{1}};
  EXPECT_EQ(View(a).num_tokens - View(a).num_computed, 1);
  EXPECT_EQ(View(b).num_tokens - View(b).num_computed, 3);
  StepBuilder builder(batch);
  builder.Add(a, 1);
  builder.Add(b, 2);
  EXPECT_THAT(First(batch.tokens(), 3),
              ElementsAre(models::DrawnBy(6), 22, 23));
  EXPECT_THAT(First(batch.positions(), 3), ElementsAre(5, 2, 3));
  EXPECT_THAT(First(batch.kv_len(), 2), ElementsAre(6, 4));
  EXPECT_THAT(First(batch.prompt_rows(), 2), ElementsAre(0, 2));
  EXPECT_THAT(First(batch.sample_rows(), batch.num_samples), ElementsAre(0));

  // With the token that is being drawn the completion is as long as it may be.
  a.max_output = 3;
  EXPECT_EQ(View(a).num_tokens - View(a).num_computed, 0);
}

TEST(StepBuilder, DraftsStandBehindTheKnownTokensAndSampleToo) {
  models::StepBatch batch({.max_tokens = 8,
                           .max_seqs = 1,
                           .max_pages_per_seq = 1,
                           .max_samples = 8});
  Sequence a;
  a.tokens = {10, 11, 12, 13, 14};
  a.num_prompt = 3;
  a.num_computed = 4;
  a.slot = 0;
  a.tables[0].pages = {PageId{0}};
  a.draft = {15, 16, 17};  // the plan took two of them
  StepBuilder builder(batch);
  builder.Add(a, 3);
  EXPECT_THAT(First(batch.tokens(), 3), ElementsAre(14, 15, 16));
  EXPECT_THAT(First(batch.positions(), 3), ElementsAre(4, 5, 6));
  EXPECT_EQ(batch.kv_len()[0], 7);
  EXPECT_THAT(First(batch.sample_rows(), batch.num_samples),
              ElementsAre(0, 1, 2));
  EXPECT_THAT(First(batch.score_ids(), batch.num_samples),
              ElementsAre(kSample, kSample, kSample));
}

TEST(StepBuilder, ScoresEachPromptTokenByTheRowBefore) {
  models::StepBatch batch({.max_tokens = 8,
                           .max_seqs = 1,
                           .max_pages_per_seq = 1,
                           .max_samples = 8});
  Sequence sequence;
  sequence.tokens = {10, 11, 12, 13, 99};  // 99 was sampled before
  sequence.num_prompt = 4;
  sequence.score_prompt = true;
  sequence.num_scored = 1;  // and so was row 0 scored
  sequence.slot = 0;
  sequence.tables[0].pages = {PageId{0}};
  StepBuilder(batch).Add(sequence, 5);
  ASSERT_EQ(batch.num_samples, 3);
  EXPECT_THAT(First(batch.sample_rows(), 3), ElementsAre(1, 2, 4));
  EXPECT_THAT(First(batch.score_ids(), 3), ElementsAre(12, 13, kSample));
}

}  // namespace
}  // namespace millrace::scheduler
