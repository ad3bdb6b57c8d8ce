#include "scheduler/batcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/unit/scheduler/fake_context.h"

namespace millrace::scheduler {
namespace {

using models::DType;
using models::Shape;
using models::Tensor;
using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Answer = StatusOr<BatchResult>;

std::chrono::steady_clock::time_point Soon() {
  return std::chrono::steady_clock::now() + std::chrono::seconds(20);
}

std::vector<Tensor> Input(float value, const Shape& shape = {1, 2}) {
  std::vector<Tensor> inputs;
  inputs.push_back(Tensor::Make(DType::kF32, shape));
  std::fill_n(inputs[0].data<float>(), inputs[0].num_elements(), value);
  return inputs;
}

class BatcherTest : public testing::Test {
 protected:
  ~BatcherTest() override { control_.Release(); }

  void Start(int32_t max_queue_size = 8, BatchingOptions batching = {}) {
    batcher_.reset();
    batcher_ = Batcher::Create(std::make_unique<FakeContext>(&control_),
                               {.model = "m",
                                .max_queue_size = max_queue_size,
                                .batching = std::move(batching),
                                .clock = &clock_},
                               &metrics_);
  }

  std::future<Answer> Send(float value, Clock::Time deadline = kNever,
                           std::stop_token stop = {}) {
    auto place = batcher_->Reserve(deadline);
    EXPECT_TRUE(place.ok()) << place.status().ToString();
    auto ended = std::make_shared<std::promise<Answer>>();
    std::future<Answer> answer = ended->get_future();
    const Status sent = batcher_->Submit(
        std::move(*place),
        {.inputs = Input(value),
         .deadline = deadline,
         .stop = std::move(stop),
         .trace = nullptr,
         .done = [ended](Answer a) { ended->set_value(std::move(a)); }});
    EXPECT_TRUE(sent.ok()) << sent.ToString();
    return answer;
  }

  // One request under way that ends with Release.
  std::future<Answer> Occupy() {
    control_.Hold();
    const int before = control_.num_begun();
    std::future<Answer> first = Send(0);
    control_.AwaitRuns(before + 1);
    return first;
  }

  FakeClock clock_;
  FakeControl control_;
  MetricRegistry metrics_;
  std::unique_ptr<Batcher> batcher_;
};

TEST_F(BatcherTest, ComputesInOrderOfArrival) {
  Start();
  auto first = Occupy();
  auto second = Send(1);
  auto third = Send(2);
  control_.Release();
  const Answer answer = third.get();
  ASSERT_TRUE(answer.ok());
  ASSERT_EQ(answer->outputs.size(), 1u);
  EXPECT_EQ(answer->outputs[0].data<float>()[1], 3);
  EXPECT_EQ(answer->batch_rows, 1);
  EXPECT_TRUE(first.get().ok());
  EXPECT_TRUE(second.get().ok());
  EXPECT_THAT(control_.seen(), ElementsAre(0, 1, 2));
}

TEST_F(BatcherTest, TellsItsTensors) {
  Start();
  ASSERT_EQ(batcher_->inputs().size(), 1u);
  EXPECT_EQ(batcher_->inputs()[0].name, "x");
  EXPECT_THAT(batcher_->inputs()[0].dims, ElementsAre(-1, 2));
  EXPECT_EQ(batcher_->inputs()[0].text, "FP32 [n, 2]");
  EXPECT_EQ(batcher_->outputs()[0].name, "y");
}

TEST_F(BatcherTest, RefusesWhatDoesNotFitBeforeItQueues) {
  Start();
  const Status refused = batcher_->Submit(
      *batcher_->Reserve(),
      {.inputs = Input(1, {1, 3}), .stop = {}, .trace = nullptr, .done = {}});
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("input 'x' is FP32 [1, 3] but the model takes"));
  EXPECT_TRUE(Send(1).get().ok());
}

TEST_F(BatcherTest, FullQueueIsRefusedWithATimeToTryAgain) {
  Start(2);
  auto first = Occupy();
  auto second = Send(1);
  auto third = Send(2);
  const Status refused = batcher_->Reserve().status();
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_GE(refused.retry_after_ms(), 1000);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("max_batch_size 1 + max_queue_size 2"));
  control_.Release();
  EXPECT_TRUE(third.get().ok());
  EXPECT_TRUE(batcher_->Drain(Soon()));
}

// As the next request of a sequence, which is sent by the ending of the last.
TEST_F(BatcherTest, AnEndingFindsItsOwnPlaceFree) {
  for (const bool preserve_ordering : {false, true}) {
    Start(0, {.preserve_ordering = preserve_ordering});
    // Shared: get may return before set_value does.
    const auto next = std::make_shared<std::promise<Status>>();
    const auto done = [this, next](const Answer&) {
      next->set_value(batcher_->Reserve().status());
    };
    const Status sent = batcher_->Submit(
        *batcher_->Reserve(),
        {.inputs = Input(1), .stop = {}, .trace = nullptr, .done = done});
    ASSERT_TRUE(sent.ok()) << sent.ToString();
    EXPECT_TRUE(next->get_future().get().ok());
  }
}

TEST_F(BatcherTest, LateRequestIsNeverComputed) {
  Start();
  auto first = Occupy();
  auto late = Send(1, clock_.Now() + milliseconds(5));
  auto patient = Send(2);
  clock_.Advance(milliseconds(5));
  control_.Release();
  const Answer answer = late.get();
  EXPECT_EQ(answer.status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(answer.status().message()),
              HasSubstr("had waited 5 ms in the queue of model 'm'"));
  EXPECT_TRUE(patient.get().ok());
  EXPECT_THAT(control_.seen(), ElementsAre(0, 2));
}

TEST_F(BatcherTest, RequestOfAGoneClientIsNeverComputed) {
  Start();
  auto first = Occupy();
  std::stop_source stop;
  auto left = Send(1, kNever, stop.get_token());
  stop.request_stop();
  control_.Release();
  EXPECT_EQ(left.get().status().code(), StatusCode::kCancelled);
  EXPECT_THAT(control_.seen(), ElementsAre(0));
}

TEST_F(BatcherTest, RequestUnderWayEndsWhenItsClientLeavesOrItIsLate) {
  Start();
  std::stop_source client;
  control_.Hold();
  auto left = Send(1, kNever, client.get_token());
  control_.AwaitRuns(1);
  client.request_stop();
  control_.Release();
  const Answer gone = left.get();
  EXPECT_EQ(gone.status().code(), StatusCode::kCancelled);
  EXPECT_THAT(gone.status().message(), HasSubstr("while"));

  control_.Hold();
  auto slow = Send(2, clock_.Now() + milliseconds(50));
  control_.AwaitRuns(2);
  clock_.Advance(milliseconds(60));
  control_.Release();
  const Answer late = slow.get();
  EXPECT_EQ(late.status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(late.status().message(), HasSubstr("while model 'm'"));
  EXPECT_TRUE(Send(3).get().ok());
}

TEST_F(BatcherTest, FailureEndsItsRequestAlone) {
  Start();
  auto failing = Send(13);
  auto next = Send(1);
  EXPECT_EQ(failing.get().status().message(), "13 is bad luck");
  EXPECT_TRUE(next.get().ok());
}

TEST_F(BatcherTest, DrainWorksOffTheQueue) {
  Start();
  auto first = Occupy();
  auto second = Send(1);
  auto drained =
      std::async(std::launch::async, [&] { return batcher_->Drain(Soon()); });
  control_.Release();
  EXPECT_TRUE(drained.get());
  EXPECT_TRUE(second.get().ok());
  EXPECT_EQ(batcher_->Reserve().status().code(), StatusCode::kUnavailable);
}

TEST_F(BatcherTest, DrainEndsWhatWaitsAtItsDeadline) {
  Start();
  auto first = Occupy();
  auto second = Send(1);
  auto drained = std::async(std::launch::async, [&] {
    return batcher_->Drain(std::chrono::steady_clock::now());
  });
  // The queue closes while the first request is under way.
  while (batcher_->Reserve().ok()) std::this_thread::yield();
  std::this_thread::sleep_for(milliseconds(20));
  control_.Release();
  EXPECT_FALSE(drained.get());
  EXPECT_TRUE(first.get().ok());
  EXPECT_EQ(second.get().status().code(), StatusCode::kUnavailable);
}

TEST_F(BatcherTest, DestructorGivesEveryRequestItsEnding) {
  Start();
  auto first = Occupy();
  auto second = Send(1);
  std::thread destroyer([&] { batcher_.reset(); });
  std::this_thread::sleep_for(milliseconds(20));
  control_.Release();
  destroyer.join();
  EXPECT_TRUE(first.get().ok());
  EXPECT_FALSE(second.get().ok());
}

TEST_F(BatcherTest, CountsEndingsRowsAndStages) {
  Start(1);
  EXPECT_TRUE(Send(1).get().ok());
  EXPECT_FALSE(Send(13).get().ok());
  auto first = Occupy();
  auto late = Send(1, clock_.Now() + milliseconds(3));
  EXPECT_FALSE(batcher_->Reserve().ok());
  EXPECT_THAT(metrics_.Text(),
              HasSubstr("millrace_requests_waiting{model=\"m\","
                        "version=\"1\"} 1"));
  clock_.Advance(milliseconds(4));
  control_.Release();
  EXPECT_FALSE(late.get().ok());
  batcher_->Drain(Soon());
  const std::string text = metrics_.Text();
  for (const char* line :
       {"requests_total{model=\"m\",outcome=\"ok\",version=\"1\"} 2",
        "requests_total{model=\"m\",outcome=\"error\",version=\"1\"} 1",
        "requests_total{model=\"m\",outcome=\"rejected\",version=\"1\"} 2",
        "millrace_inference_rows_total{model=\"m\",version=\"1\"} 3",
        "stage_seconds_total{model=\"m\",stage=\"compute_infer\","
        "version=\"1\"} 0.004",
        "millrace_batches_total{closed=\"full\",model=\"m\",version=\"1\"} 3",
        "millrace_admission_refusals_total{model=\"m\",reason=\"queue_full\","
        "version=\"1\"} 1"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST_F(BatcherTest, VersionsThatServeTogetherAreCountedApart) {
  FakeControl other;
  const auto second = Batcher::Create(
      std::make_unique<FakeContext>(&other),
      {.model = "m", .version = "2", .clock = &clock_}, &metrics_);
  Start();
  EXPECT_TRUE(Send(1).get().ok());
  batcher_->Drain(Soon());
  const std::string text = metrics_.Text();
  for (const char* line :
       {"requests_total{model=\"m\",outcome=\"ok\",version=\"1\"} 1",
        "requests_total{model=\"m\",outcome=\"ok\",version=\"2\"} 0",
        "limit{limit=\"instance_count\",model=\"m\",version=\"2\"} 1"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

// Many senders, some of whom leave or are late: as many endings as requests.
TEST_F(BatcherTest, EveryRequestOfACrowdEndsOnce) {
  batcher_ = Batcher::Create(std::make_unique<FakeContext>(&control_),
                             {.model = "m", .max_queue_size = 16}, &metrics_);
  constexpr int kSenders = 4;
  constexpr int kEach = 200;
  std::atomic<int> num_sent = 0;
  std::atomic<int> num_ended = 0;
  std::vector<std::thread> senders;
  for (int s = 0; s < kSenders; ++s) {
    senders.emplace_back([&, s] {
      std::mt19937 random(static_cast<unsigned>(s));
      for (int i = 0; i < kEach; ++i) {
        auto place = batcher_->Reserve();
        if (!place.ok()) continue;
        std::stop_source stop;
        const bool late = random() % 4 == 0;
        num_sent.fetch_add(1);
        EXPECT_TRUE(
            batcher_
                ->Submit(std::move(*place),
                         {.inputs = Input(1),
                          .deadline = late ? Clock::Real().Now() : kNever,
                          .stop = stop.get_token(),
                          .trace = nullptr,
                          .done = [&](Answer) { num_ended.fetch_add(1); }})
                .ok());
        if (random() % 4 == 0) stop.request_stop();
      }
    });
  }
  for (std::thread& sender : senders) sender.join();
  EXPECT_TRUE(batcher_->Drain(Soon()));
  EXPECT_GT(num_sent.load(), 0);
  EXPECT_EQ(num_ended.load(), num_sent.load());
}

TEST_F(BatcherTest, WarmsUpOnItsThreadBeforeItIsThereAndCountsNothing) {
  batcher_ =
      Batcher::Create(std::make_unique<FakeContext>(&control_),
                      {.model = "m", .clock = &clock_}, &metrics_, Input(3));
  EXPECT_THAT(control_.seen(), ElementsAre(3));
  const auto answer = Send(5).get();
  ASSERT_TRUE(answer.ok());
  EXPECT_THAT(control_.seen(), ElementsAre(3, 5));
  EXPECT_THAT(
      metrics_.Text(),
      HasSubstr("millrace_inference_rows_total{model=\"m\",version=\"1\"} 1"));
}

TEST_F(BatcherTest, AWarmUpThatFailsIsOnlyLogged) {
  batcher_ =
      Batcher::Create(std::make_unique<FakeContext>(&control_),
                      {.model = "m", .clock = &clock_}, &metrics_, Input(13));
  EXPECT_TRUE(Send(5).get().ok());
}

TEST_F(BatcherTest, EachInstanceComputesTheSamplesAndCountsNothing) {
  const auto samples = std::make_shared<std::vector<WarmUpSample>>();
  samples->push_back({"a", Input(3), 2});
  samples->push_back({"b", Input(4), 1});
  std::vector<std::unique_ptr<models::graph::ExecutionContext>> instances;
  for (int i = 0; i < 2; ++i) {
    instances.push_back(std::make_unique<FakeContext>(&control_));
  }
  batcher_ = Batcher::Create(
      std::move(instances),
      {.model = "m", .clock = &clock_, .samples = samples}, &metrics_);
  EXPECT_THAT(control_.seen(), ElementsAre(3, 3, 4, 3, 3, 4));
  EXPECT_TRUE(batcher_->sample_status().ok());
  EXPECT_EQ(batcher_->counts().executions, 0);
}

TEST_F(BatcherTest, ASampleThatFailsIsTold) {
  const auto samples = std::make_shared<std::vector<WarmUpSample>>();
  samples->push_back({"fits", Input(3), 1});
  samples->push_back({"fails", Input(13), 5});
  batcher_ = Batcher::Create(
      std::make_unique<FakeContext>(&control_),
      {.model = "m", .clock = &clock_, .samples = samples}, &metrics_);
  EXPECT_THAT(std::string(batcher_->sample_status().message()),
              HasSubstr("model_warmup sample 'fails': "));
}

}  // namespace
}  // namespace millrace::scheduler
