// Several requests in one batch, several instances of one model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "scheduler/batcher.h"
#include "tests/unit/scheduler/fake_context.h"

namespace millrace::scheduler {
namespace {

using models::DType;
using models::Shape;
using models::Tensor;
using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Result = StatusOr<BatchResult>;

class BatcherInstancesTest : public testing::Test {
 protected:
  ~BatcherInstancesTest() override { control_.Release(); }

  void Start(const BatchingOptions& batching, int num_instances = 1) {
    batcher_ = Batcher::Create(Contexts(num_instances),
                               {.model = "m", .batching = batching}, &metrics_);
  }

  std::vector<std::unique_ptr<models::graph::ExecutionContext>> Contexts(
      int count) {
    std::vector<std::unique_ptr<models::graph::ExecutionContext>> contexts;
    for (int i = 0; i < count; ++i) {
      contexts.push_back(std::make_unique<FakeContext>(&control_));
    }
    return contexts;
  }

  Status TrySend(float value, int64_t rows, std::function<void(Result)> done,
                 bool may_run_here = false) {
    std::vector<Tensor> inputs;
    inputs.push_back(Tensor::Make(DType::kF32, {rows, 2}));
    std::fill_n(inputs[0].data<float>(), inputs[0].num_elements(), value);
    ASSIGN_OR_RETURN(Reservation place, batcher_->Reserve());
    return batcher_->Submit(std::move(place), {.inputs = std::move(inputs),
                                               .stop = stop_.get_token(),
                                               .trace = nullptr,
                                               .may_run_here = may_run_here,
                                               .done = std::move(done)});
  }

  std::future<Result> Send(float value, int64_t rows = 1) {
    auto ended = std::make_shared<std::promise<Result>>();
    const Status sent = TrySend(
        value, rows, [ended](Result r) { ended->set_value(std::move(r)); });
    EXPECT_TRUE(sent.ok()) << sent.ToString();
    return ended->get_future();
  }

  // Of a request that may be computed here: true if it was.
  bool RanHere(float value) {
    const auto thread = std::this_thread::get_id();
    auto ended = std::make_shared<std::promise<bool>>();
    std::future<bool> ran_here = ended->get_future();
    const Status sent = TrySend(
        value, 1,
        [=](const Result& r) {
          EXPECT_TRUE(r.ok()) << r.status().ToString();
          EXPECT_EQ(r->outputs[0].data<float>()[1], value + 1);
          EXPECT_EQ(r->ran_here, std::this_thread::get_id() == thread);
          ended->set_value(r->ran_here);
        },
        true);
    EXPECT_TRUE(sent.ok()) << sent.ToString();
    return ran_here.get();
  }

  // Requests under way at so many instances, which end with Release.
  std::vector<std::future<Result>> Occupy(int num_instances = 1) {
    control_.Hold();
    std::vector<std::future<Result>> first;
    for (int i = 0; i < num_instances; ++i) {
      first.push_back(Send(0));
      control_.AwaitRuns(i + 1);
    }
    return first;
  }

  FakeControl control_;
  MetricRegistry metrics_;
  std::stop_source stop_;
  std::unique_ptr<Batcher> batcher_;
};

TEST_F(BatcherInstancesTest, WaitingRequestsShareABatchAndGetTheirOwnRows) {
  Start({.max_batch_size = 4});
  auto first = Occupy();
  auto a = Send(1);
  auto b = Send(2, 2);
  control_.Release();
  const Result of_a = a.get();
  const Result of_b = b.get();
  ASSERT_TRUE(of_a.ok());
  ASSERT_TRUE(of_b.ok());
  EXPECT_EQ(of_a->outputs[0].shape(), (Shape{1, 2}));
  EXPECT_EQ(of_a->outputs[0].data<float>()[0], 2);
  EXPECT_EQ(of_b->outputs[0].shape(), (Shape{2, 2}));
  EXPECT_EQ(of_b->outputs[0].data<float>()[3], 3);
  EXPECT_EQ(of_b->batch_rows, 3);
  EXPECT_EQ(of_b->batch_requests, 2);
  EXPECT_EQ(of_b->closed, BatchClosed::kIdle);
  EXPECT_EQ(control_.num_begun(), 2);

  const BatchCounts counts = batcher_->counts();
  EXPECT_EQ(counts.inferences, 4);
  EXPECT_EQ(counts.executions, 2);
  EXPECT_EQ(counts.success.count, 3);
  EXPECT_EQ(counts.by_batch_rows.at(3).compute_infer.count, 1);
}

TEST_F(BatcherInstancesTest, ATinyGraphIsComputedByItsCaller) {
  Start({.max_batch_size = 4});
  EXPECT_FALSE(RanHere(1)) << "nothing is known of its time yet";
  EXPECT_FALSE(RanHere(2)) << "it is not tiny";
  control_.BeTiny();
  int num_sent = 3;
  // A busy machine may hold a run up beyond what a caller may spend.
  while (!RanHere(3) && num_sent < 1000) ++num_sent;
  EXPECT_LT(num_sent, 1000);
  auto not_asked = Send(4);
  ++num_sent;
  EXPECT_FALSE(not_asked.get()->ran_here);
  const BatchCounts counts = batcher_->counts();
  EXPECT_EQ(counts.success.count, num_sent);
  EXPECT_EQ(counts.executions, num_sent);
  EXPECT_TRUE(batcher_->Drain(std::chrono::steady_clock::now() +
                              std::chrono::seconds(20)));
  EXPECT_THAT(metrics_.Text(),
              HasSubstr("millrace_requests_running{model=\"m\","
                        "version=\"1\"} 0"));
  EXPECT_THAT(metrics_.Text(),
              HasSubstr("millrace_batches_total{closed=\"idle\",model=\"m\","
                        "version=\"1\"} " +
                        std::to_string(num_sent)));
}

TEST_F(BatcherInstancesTest, ItsCallerComputesNothingThatOthersWaitFor) {
  Start({.max_batch_size = 4});
  control_.BeTiny();
  EXPECT_FALSE(RanHere(1));
  control_.Hold();
  auto first = Send(1);
  control_.AwaitRuns(2);
  auto second = Send(2);
  std::promise<bool> third;
  const Status sent = TrySend(
      3, 1, [&](const Result& r) { third.set_value(r->ran_here); }, true);
  EXPECT_TRUE(sent.ok());
  control_.Release();
  EXPECT_FALSE(third.get_future().get()) << "another request came before it";
  EXPECT_TRUE(first.get().ok());
  EXPECT_TRUE(second.get().ok());
}

TEST_F(BatcherInstancesTest, CallersAndInstancesShareTheContexts) {
  Start({.max_batch_size = 4}, 2);
  control_.BeTiny();
  EXPECT_FALSE(RanHere(1));
  std::atomic<int> num_here = 0;
  std::vector<std::thread> clients;
  for (int i = 0; i < 4; ++i) {
    clients.emplace_back([&, i] {
      for (int n = 0; n < 200; ++n) {
        if (i == 0) {
          EXPECT_TRUE(Send(1).get().ok());
        } else if (RanHere(static_cast<float>(n % 10))) {
          num_here.fetch_add(1);
        }
      }
    });
  }
  for (int i = 0; i < 5; ++i) batcher_->SetInstances(Contexts(1 + i % 2));
  for (std::thread& client : clients) client.join();
  EXPECT_GT(num_here.load(), 0);
  EXPECT_EQ(batcher_->counts().success.count, 801);
}

TEST_F(BatcherInstancesTest, NothingRunsHereWhereBatchesOrOrderAreWanted) {
  control_.BeTiny();
  Start({.max_batch_size = 2, .max_queue_delay = milliseconds(1)});
  EXPECT_FALSE(RanHere(1));
  EXPECT_FALSE(RanHere(2));
  Start({.max_batch_size = 2, .preserve_ordering = true});
  EXPECT_FALSE(RanHere(1));
  EXPECT_FALSE(RanHere(2));
}

TEST_F(BatcherInstancesTest, WaitsForItsDelayOnly) {
  Start({.max_batch_size = 4, .max_queue_delay = milliseconds(20)});
  const auto began = std::chrono::steady_clock::now();
  auto a = Send(1);
  auto b = Send(2);
  const Result of_a = a.get();
  ASSERT_TRUE(of_a.ok());
  EXPECT_EQ(of_a->batch_requests, 2);
  EXPECT_EQ(of_a->closed, BatchClosed::kDelay);
  EXPECT_GE(std::chrono::steady_clock::now() - began, milliseconds(20));
  EXPECT_TRUE(b.get().ok());
}

TEST_F(BatcherInstancesTest, MemoryThatIsNotThereEndsTheRequestAlone) {
  Start({.max_batch_size = 4});
  auto first = Occupy();
  auto good = Send(1);
  auto bad = Send(-14);
  control_.Release();
  EXPECT_TRUE(good.get().ok());
  const Status status = bad.get().status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("has no memory"));
  EXPECT_TRUE(Send(2).get().ok());
}

TEST_F(BatcherInstancesTest, FailureOfABatchIsThatOfTheRequestThatCausesIt) {
  Start({.max_batch_size = 4});
  auto first = Occupy();
  auto good = Send(1);
  auto bad = Send(13);
  auto fine = Send(2);
  control_.Release();
  EXPECT_TRUE(good.get().ok());
  EXPECT_EQ(bad.get().status().message(), "13 is bad luck");
  EXPECT_TRUE(fine.get().ok());
  EXPECT_TRUE(first[0].get().ok());
  EXPECT_TRUE(batcher_->Drain(std::chrono::steady_clock::now() +
                              std::chrono::seconds(20)));
  EXPECT_THAT(metrics_.Text(),
              HasSubstr("millrace_requests_running{model=\"m\","
                        "version=\"1\"} 0"));
}

TEST_F(BatcherInstancesTest, TooManyRowsAreRefusedWhereTheModelSaysSo) {
  Start({.max_batch_size = 4, .refuse_larger = true});
  const Status refused = TrySend(1, 5, {});
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("has 5 rows but max_batch_size of model 'm' is 4"));
  Start({.max_batch_size = 4});
  EXPECT_TRUE(Send(1, 5).get().ok());
}

TEST_F(BatcherInstancesTest, InstancesRunAtTheSameTime) {
  Start({}, 2);
  auto both = Occupy(2);
  EXPECT_EQ(control_.most_together(), 2);
  control_.Release();
  for (auto& one : both) EXPECT_TRUE(one.get().ok());
}

TEST_F(BatcherInstancesTest, OrderIsKeptAcrossInstances) {
  Start({.preserve_ordering = true}, 3);
  constexpr int kRequests = 300;
  std::vector<float> ended;  // endings never run two at a time
  for (int i = 0; i < kRequests; ++i) {
    while (true) {
      const Status sent =
          TrySend(i == 13 ? 0.f : static_cast<float>(i), 1, [&ended](Result r) {
            ASSERT_TRUE(r.ok());
            ended.push_back(r->outputs[0].data<float>()[0]);
          });
      if (sent.ok()) break;
      std::this_thread::yield();
    }
  }
  EXPECT_TRUE(batcher_->Drain(std::chrono::steady_clock::now() +
                              std::chrono::seconds(20)));
  ASSERT_EQ(ended.size(), static_cast<size_t>(kRequests));
  ended[13] = 14;
  EXPECT_TRUE(std::is_sorted(ended.begin(), ended.end()));
}

TEST_F(BatcherInstancesTest, InstancesComeAndGoWithoutLosingARequest) {
  Start({.max_batch_size = 4}, 1);
  std::atomic<int> num_sent = 0;
  std::atomic<int> num_good = 0;
  std::atomic<bool> over = false;
  std::thread sender([&] {
    while (!over.load()) {
      const Status sent = TrySend(1, 1, [&](Result r) {
        if (r.ok()) num_good.fetch_add(1);
      });
      if (sent.ok()) {
        num_sent.fetch_add(1);
      } else {
        std::this_thread::yield();
      }
    }
  });
  for (int i = 0; i < 50; ++i) {
    batcher_->SetInstances(Contexts(1 + i % 3));
    EXPECT_EQ(batcher_->num_instances(), 1 + i % 3);
  }
  over.store(true);
  sender.join();
  EXPECT_TRUE(batcher_->Drain(std::chrono::steady_clock::now() +
                              std::chrono::seconds(20)));
  EXPECT_GT(num_sent.load(), 0);
  EXPECT_EQ(num_good.load(), num_sent.load());
}

TEST_F(BatcherInstancesTest, MoreInstancesHaveMorePlaces) {
  Start({}, 1);
  batcher_->SetInstances(Contexts(2));
  auto both = Occupy(2);
  EXPECT_EQ(control_.most_together(), 2);
  int places = 0;
  std::vector<std::future<Result>> more;
  while (places < 1000) {
    const Status sent = TrySend(1, 1, [](const Result&) {});
    if (!sent.ok()) {
      EXPECT_THAT(
          std::string(sent.message()),
          HasSubstr("instances x max_batch_size 2 + max_queue_size 100"));
      break;
    }
    ++places;
  }
  EXPECT_EQ(places, config::CommonSettings::kMaxQueueSize);
  control_.Release();
  for (auto& one : both) EXPECT_TRUE(one.get().ok());
}

TEST_F(BatcherInstancesTest, ClientThatLeavesDoesNotStopItsBatchMates) {
  Start({.max_batch_size = 2, .max_queue_delay = std::chrono::seconds(20)});
  control_.Hold();
  std::stop_source client;
  std::swap(client, stop_);
  auto leaving = Send(1);
  std::swap(client, stop_);
  auto staying = Send(2);
  control_.AwaitRuns(1);
  client.request_stop();
  control_.Release();
  EXPECT_EQ(leaving.get().status().code(), StatusCode::kCancelled);
  const Result stayed = staying.get();
  ASSERT_TRUE(stayed.ok());
  EXPECT_EQ(stayed->batch_requests, 2);
}

}  // namespace
}  // namespace millrace::scheduler
