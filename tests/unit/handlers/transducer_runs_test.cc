// Runs of a recogniser beside others: who has a place, on which threads, until
// when.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "handlers/transducer/transducer_handler.h"
#include "handlers/transducer/transducer_recogniser.h"
#include "tests/unit/handlers/transducer_fixture.h"

namespace millrace::handlers {
namespace {

using models::DType;
using models::Tensor;
using ::testing::Each;

class TransducerRuns : public Transducer {};

// Keeps requests until they are let through.
class Gate final : public TensorHandler {
 public:
  explicit Gate(TensorHandler* behind) : behind_(behind) {}
  void Start(TensorRequest request, Done done, std::stop_token stop) override {
    {
      const std::lock_guard lock(mu_);
      short_done.push_back(request.short_done);
      deadlines.push_back(request.deadline);
      if (is_shut) {
        kept_.push_back(
            [this, stop, done = std::move(done),
             of = std::make_shared<TensorRequest>(std::move(request))] {
              behind_->Start(std::move(*of), done, stop);
            });
        return;
      }
    }
    behind_->Start(std::move(request), std::move(done), std::move(stop));
  }
  void Open() {
    std::vector<std::function<void()>> kept;
    {
      const std::lock_guard lock(mu_);
      is_shut = false;
      kept = std::exchange(kept_, {});
    }
    for (const auto& each : kept) each();
  }
  Status HasPlace() const override { return behind_->HasPlace(); }
  const std::vector<models::TensorSpec>& inputs() const override {
    return behind_->inputs();
  }
  const std::vector<models::TensorSpec>& outputs() const override {
    return behind_->outputs();
  }

  bool is_shut = false;
  std::vector<bool> short_done;  // of each request
  std::vector<Clock::Time> deadlines;

 private:
  TensorHandler* const behind_;
  std::mutex mu_;
  std::vector<std::function<void()>> kept_;
};

// Runs of several segments, each of which asks the graphs many times.
TEST_F(TransducerRuns, WhatIsAdmittedIsNotRefusedHalfWay) {
  Gate encoder(encoder_.handler.get());
  TransducerGraphs graphs = Graphs();
  graphs.encoder = &encoder;
  graphs.num_encoders = 2;
  TaskParts parts = Parts(4);
  parts.max_queue_size = 3;
  const auto made = TransducerRecogniser::Create(parts, settings_, graphs);
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  const TransducerRecogniser& recogniser = **made;
  const std::vector<float> samples = Samples(wanted_["clips"]["long"]);
  encoder.is_shut = true;
  std::vector<std::promise<StatusOr<TransducerRecogniser::Result>>> answers(5);
  for (auto& answer : answers) {
    EXPECT_TRUE(recogniser.HasPlace().ok());
    recogniser.Run({.samples = samples, .is_last = true},
                   [&](auto result) { answer.set_value(std::move(result)); },
                   {});
  }
  EXPECT_EQ(recogniser.in_flight(), 5);
  // Before any sound is read, and as a run.
  // Shared: one that is not refused answers later.
  const auto run = std::make_shared<Status>();
  recogniser.Run({.samples = samples},
                 [run](const auto& result) { *run = result.status(); }, {});
  for (const Status& refused :
       {recogniser.HasPlace(), recogniser.Reserve().status(), *run}) {
    EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
    EXPECT_EQ(refused.reason(), "queue_full");
    EXPECT_GT(refused.retry_after_ms(), 0);
  }
  encoder.Open();
  for (auto& answer : answers) {
    const auto result = answer.get_future().get();
    ASSERT_TRUE(result.ok()) << result.status().ToString();
  }
  EXPECT_EQ(recogniser.in_flight(), 0);
  const auto place = recogniser.Reserve();
  ASSERT_TRUE(place.ok());
  EXPECT_EQ(recogniser.in_flight(), 1);
}

TEST_F(TransducerRuns, ASearchIsNotOnTheEncodersThread) {
  Gate encoder(encoder_.handler.get()), joiner(joiner_.handler.get());
  TransducerGraphs graphs = Graphs();
  graphs.encoder = &encoder;
  graphs.joiner = &joiner;
  const auto made = TransducerRecogniser::Create(Parts(4), settings_, graphs);
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  ASSERT_TRUE(Run(**made, {.samples = Samples(wanted_["clips"]["long"]),
                           .is_last = true})
                  .ok());
  EXPECT_THAT(encoder.short_done, Each(false));
  EXPECT_THAT(joiner.short_done, Each(true));
  EXPECT_GT(encoder.short_done.size(), 1U);
}

TEST_F(TransducerRuns, ARequestsOwnTimeoutIsTheDeadlineOfItsAsks) {
  Gate encoder(encoder_.handler.get());
  TransducerGraphs graphs = Graphs();
  graphs.encoder = &encoder;
  const auto made = TransducerRecogniser::Create(Parts(), settings_, graphs);
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  const auto handler = MakeTransducerHandler(made->get());
  const std::vector<float> samples = Samples(wanted_["clips"]["short"]);
  TensorRequest request;
  request.trace = std::make_shared<Trace>();
  request.timeout = std::chrono::hours(1);
  request.inputs.push_back(
      {"audio",
       Tensor::From<float>(DType::kF32, {static_cast<int64_t>(samples.size())},
                           samples)});
  std::promise<StatusOr<TensorResponse>> answer;
  handler->Start(std::move(request),
                 [&](auto got) { answer.set_value(std::move(got)); }, {});
  ASSERT_TRUE(answer.get_future().get().ok());
  ASSERT_FALSE(encoder.deadlines.empty());
  EXPECT_LE(encoder.deadlines.front(),
            Clock::Real().Now() + std::chrono::hours(1));
}

}  // namespace
}  // namespace millrace::handlers
