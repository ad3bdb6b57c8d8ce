// The embedding engine over a runner whose hidden rows are a plain function of
// token and position, read back through the page table: pooling, sharing of
// steps, endings and counters.
#include "scheduler/embedding_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <string>
#include <utility>

namespace millrace::scheduler {
namespace {

using models::kPageTokens;
using models::StepBatch;
using testing::HasSubstr;
using Vectors = EmbeddingTask::Vectors;

constexpr int32_t kHidden = 3;

std::vector<float> RowOf(int32_t token, int32_t position) {
  return {static_cast<float>(token), static_cast<float>(position),
          static_cast<float>(token * (position + 1))};
}

struct Faults {
  std::atomic<int> steps{0};
  std::atomic<int> most_seqs{0};
  std::atomic<int> fault_at{0};  // counted from 1; 0: never
};

class RowRunner final : public models::Runner, public models::LogitsView {
 public:
  RowRunner(int32_t num_pages, FakeClock* clock, std::shared_ptr<Faults> told)
      : clock_(clock),
        told_(std::move(told)),
        kv_(static_cast<size_t>(num_pages) * kPageTokens) {
    info_.limits = {.max_tokens = 16,
                    .max_seqs = 4,
                    .max_pages_per_seq = 8,
                    .max_samples = 16};
    info_.vocab_size = 100;
    info_.max_context = 8 * kPageTokens;
    info_.num_pages = num_pages;
  }

  const models::RunnerInfo& info() const override { return info_; }
  void InitSlot(const models::SlotInit& init) override {
    EXPECT_TRUE(init.slot >= 0 && init.slot < info_.limits.max_seqs);
  }
  void Launch(const StepBatch& batch) override {
    clock_->Advance(std::chrono::milliseconds(100));
    const int step = ++told_->steps;
    if (batch.num_seqs > told_->most_seqs) told_->most_seqs = batch.num_seqs;
    status_ =
        step == told_->fault_at ? Internal("the device is gone") : OkStatus();
    rows_.clear();
    for (int32_t seq = 0; seq < batch.num_seqs; ++seq) {
      for (int32_t row = batch.q_start()[seq]; row < batch.q_start()[seq + 1];
           ++row) {
        Cell(batch, seq, batch.positions()[row]) = batch.tokens()[row];
      }
    }
    for (int32_t i = 0; i < batch.num_samples; ++i) {
      const int32_t at = batch.positions()[batch.sample_rows()[i]];
      rows_.push_back(RowOf(Cell(batch, batch.sample_seqs()[i], at), at));
    }
  }
  StatusOr<const models::StepResult*> Wait() override {
    if (!status_.ok()) return status_;
    return &result_;
  }
  std::span<const float> Logits(int32_t sample) const override {
    return rows_[static_cast<size_t>(sample)];
  }

 private:
  int32_t& Cell(const StepBatch& batch, int32_t seq, int32_t position) {
    const auto page =
        static_cast<int32_t>(batch.pages(seq)[position / kPageTokens]);
    return kv_.at(
        static_cast<size_t>(page * kPageTokens + position % kPageTokens));
  }

  FakeClock* const clock_;
  const std::shared_ptr<Faults> told_;
  models::RunnerInfo info_;
  std::vector<int32_t> kv_;
  std::vector<std::vector<float>> rows_;
  models::StepResult result_;
  Status status_;
};

class EmbeddingEngineTest : public testing::Test {
 protected:
  void Start(RowPooling pooling, int32_t num_pages = 8,
             int32_t max_queue_size = 8) {
    engine_ = EmbeddingEngine::Create(
        std::make_unique<RowRunner>(num_pages, &clock_, told_),
        {.model = "m",
         .pooling = pooling,
         .hidden = kHidden,
         .max_queue_size = max_queue_size,
         .clock = &clock_},
        &metrics_);
  }

  std::future<StatusOr<Vectors>> Submit(EmbeddingTask task) {
    auto promise = std::make_shared<std::promise<StatusOr<Vectors>>>();
    auto result = promise->get_future();
    task.done = [promise](StatusOr<Vectors> vectors) {
      promise->set_value(std::move(vectors));
    };
    auto place = engine_->Reserve();
    EXPECT_TRUE(place.ok());
    const Status status = engine_->Submit(*std::move(place), std::move(task));
    if (!status.ok()) promise->set_value(status);
    return result;
  }
  StatusOr<Vectors> Run(std::vector<std::vector<int32_t>> texts) {
    return Submit({.texts = std::move(texts)}).get();
  }
  // Of the series that begins so; -1: there is none.
  double Metric(const std::string& series) {
    const std::string text = metrics_.Text();
    const size_t at = text.find("\n" + series);
    const size_t end = text.find("} ", at);
    return at == std::string::npos ? -1 : std::stod(text.substr(end + 2));
  }

  MetricRegistry metrics_;
  FakeClock clock_;
  std::shared_ptr<Faults> told_ = std::make_shared<Faults>();
  std::unique_ptr<EmbeddingEngine> engine_;
};

TEST_F(EmbeddingEngineTest, PoolsRowsAsItIsTold) {
  const std::vector<int32_t> text = {7, 3, 5};
  Start(RowPooling::kLast);
  EXPECT_EQ(Run({text})->at(0), RowOf(5, 2));
  Start(RowPooling::kFirst);
  EXPECT_EQ(Run({text})->at(0), RowOf(7, 0));
  Start(RowPooling::kMean);
  EXPECT_EQ(Run({text})->at(0),
            (std::vector<float>{5.0f, 1.0f, (7 + 6 + 15) / 3.0f}));
}

TEST_F(EmbeddingEngineTest, TextsShareStepsAndKeepTheirOrder) {
  Start(RowPooling::kLast);
  // 2 + 3 + 4 tokens fit one step of 16; the fourth is cut at the budget.
  const auto vectors =
      Run({{1, 2}, {3, 4, 5}, {6, 7, 8, 9}, std::vector<int32_t>(20, 11)});
  ASSERT_TRUE(vectors.ok()) << vectors.status().ToString();
  ASSERT_EQ(vectors->size(), 4u);
  EXPECT_EQ((*vectors)[0], RowOf(2, 1));
  EXPECT_EQ((*vectors)[1], RowOf(5, 2));
  EXPECT_EQ((*vectors)[2], RowOf(9, 3));
  EXPECT_EQ((*vectors)[3], RowOf(11, 19));
  EXPECT_EQ(told_->steps, 2);
  EXPECT_EQ(told_->most_seqs, 4);
}

TEST_F(EmbeddingEngineTest, MeansOfLongTextsAreThoseOfAllTheirChunks) {
  Start(RowPooling::kMean);
  std::vector<int32_t> text;
  double sum = 0;
  for (int32_t i = 0; i < 150; ++i) {
    text.push_back(i % 90);
    sum += i % 90;
  }
  const auto vectors = Run({text});
  ASSERT_TRUE(vectors.ok());
  EXPECT_FLOAT_EQ((*vectors)[0][0], static_cast<float>(sum / 150));
  EXPECT_FLOAT_EQ((*vectors)[0][1], 74.5f);
}

TEST_F(EmbeddingEngineTest, ATextWaitsForItsPages) {
  Start(RowPooling::kLast, /*num_pages=*/2);
  const std::vector<int32_t> two_pages(kPageTokens + 1, 4);
  const auto vectors = Run({two_pages, two_pages, {9}});
  ASSERT_TRUE(vectors.ok());
  EXPECT_EQ((*vectors)[1], RowOf(4, kPageTokens));
  EXPECT_EQ((*vectors)[2], RowOf(9, 0));
  EXPECT_EQ(told_->most_seqs, 1);
}

TEST_F(EmbeddingEngineTest, WhatCannotBeATextIsRefused) {
  Start(RowPooling::kLast, /*num_pages=*/1);
  EXPECT_EQ(engine_->max_tokens(), kPageTokens);
  EXPECT_THAT(std::string(Run({}).status().message()), HasSubstr("no texts"));
  EXPECT_THAT(std::string(Run({{}}).status().message()),
              HasSubstr("0 tokens; 1 to 64"));
  EXPECT_THAT(
      std::string(Run({std::vector<int32_t>(65, 1)}).status().message()),
      HasSubstr("65 tokens; 1 to 64"));
  EXPECT_THAT(std::string(Run({{1, 100}}).status().message()),
              HasSubstr("token id 100 is not one of 0 to 99"));
  EXPECT_TRUE(Run({{1}}).ok());  // all places are free again
}

TEST_F(EmbeddingEngineTest, AFaultEndsTheTextsOfItsStepAndNoOthers) {
  Start(RowPooling::kLast);
  told_->fault_at = 1;
  const auto failed = Run({{1, 2}});
  ASSERT_FALSE(failed.ok());
  EXPECT_THAT(std::string(failed.status().message()),
              HasSubstr("the device is gone"));
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(Run({{1, 2}}).ok());
  EXPECT_EQ(Metric("millrace_inference_requests_total{model=\"m\","
                   "outcome=\"error\""),
            1);
}

TEST_F(EmbeddingEngineTest, RequestsEndWhenTheyAreNotWantedAnyMore) {
  Start(RowPooling::kLast);
  std::stop_source stop;
  stop.request_stop();
  const auto gone = Submit({.texts = {{1}}, .stop = stop.get_token()}).get();
  EXPECT_EQ(gone.status().code(), StatusCode::kCancelled);
  const auto late = Submit({.texts = {{1}}, .deadline = clock_.Now()}).get();
  EXPECT_EQ(late.status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(told_->steps, 0);
  EXPECT_TRUE(Run({{1}}).ok());
  // As batchers count them.
  const std::string outcome =
      "millrace_inference_requests_total{model=\"m\",outcome=";
  EXPECT_EQ(Metric(outcome + "\"cancelled\""), 1);
  EXPECT_EQ(Metric(outcome + "\"rejected\""), 1);
  EXPECT_EQ(Metric(outcome + "\"error\""), 0);
  EXPECT_EQ(Metric(outcome + "\"ok\""), 1);
}

TEST_F(EmbeddingEngineTest, CountsRowsAndSecondsOfWhatItAnswered) {
  Start(RowPooling::kMean);
  // 20 tokens in steps of 16: two steps of 100 ms. Then one of 100 ms.
  ASSERT_TRUE(Run({std::vector<int32_t>(17, 1), {2, 3, 4}}).ok());
  ASSERT_TRUE(Run({{5}}).ok());
  EXPECT_EQ(Metric("millrace_inference_rows_total{model=\"m\""), 3);
  EXPECT_DOUBLE_EQ(
      Metric("millrace_inference_request_seconds_total{model=\"m\""), 0.3);
  const std::string stages =
      "millrace_inference_stage_seconds_total{model=\"m\",stage=";
  EXPECT_DOUBLE_EQ(Metric(stages + "\"compute_infer\""), 0.3);
  EXPECT_EQ(Metric(stages + "\"queue\""), 0);
  EXPECT_EQ(Metric("millrace_inference_requests_total{model=\"m\","
                   "outcome=\"ok\""),
            2);
}

// What never began counts among the completions, too: the estimate of when to
// try again rests on how fast places become free.
TEST_F(EmbeddingEngineTest, PlacesThatNeverBeganTellHowSoonToTryAgain) {
  Start(RowPooling::kLast, /*num_pages=*/8, /*max_queue_size=*/0);
  std::vector<Reservation> places;
  for (int i = 0; i < 4; ++i) {
    auto place = engine_->Reserve();
    ASSERT_TRUE(place.ok());
    places.push_back(*std::move(place));
  }
  clock_.Advance(std::chrono::seconds(30));
  const auto before = engine_->Reserve();
  ASSERT_FALSE(before.ok());
  EXPECT_GE(before.status().retry_after_ms(), 30'000);
  std::stop_source stop;
  stop.request_stop();
  // Eight requests that their clients left give their places back at once.
  for (int i = 0; i < 8; ++i) {
    clock_.Advance(std::chrono::milliseconds(10));
    std::promise<void> ended;
    ASSERT_TRUE(engine_
                    ->Submit(std::move(places.back()),
                             {.texts = {{1}},
                              .stop = stop.get_token(),
                              .done = [&](auto) { ended.set_value(); }})
                    .ok());
    ended.get_future().wait();
    for (auto next = engine_->Reserve();; next = engine_->Reserve()) {
      if (!next.ok()) continue;  // given back after the ending
      places.back() = *std::move(next);
      break;
    }
  }
  const auto after = engine_->Reserve();
  ASSERT_FALSE(after.ok());
  EXPECT_LT(after.status().retry_after_ms(), before.status().retry_after_ms());
}

}  // namespace
}  // namespace millrace::scheduler
