#include "handlers/stage_pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <vector>

namespace millrace::handlers {
namespace {

// Counts who is in which stage; computations are held until they are let go.
struct Watch {
  std::mutex mu;
  std::condition_variable changed;
  int preparing = 0, most_preparing = 0;
  int finishing = 0, most_finishing = 0;
  int prepared = 0, finished = 0;
  bool finish_may_go = true;
  std::vector<int> order;  // of the endings
  std::vector<std::function<void()>> computing;

  template <typename Condition>
  bool Await(Condition condition) {
    std::unique_lock lock(mu);
    return changed.wait_for(lock, std::chrono::seconds(20), condition);
  }
  // Lets the oldest computations end, at most `count`.
  int Release(size_t count) {
    std::vector<std::function<void()>> ending;
    {
      const std::lock_guard lock(mu);
      count = std::min(count, computing.size());
      const auto last = computing.begin() + static_cast<int64_t>(count);
      ending.assign(computing.begin(), last);
      computing.erase(computing.begin(), last);
    }
    for (const auto& done : ending) done();
    return static_cast<int>(count);
  }
};

class Held final : public MicroBatch {
 public:
  Held(Watch& watch, int number, bool fails = false)
      : watch_(watch), number_(number), fails_(fails) {}

  bool Preprocess() override {
    const std::lock_guard lock(watch_.mu);
    ++watch_.prepared;
    watch_.changed.notify_all();
    if (fails_) ++watch_.finished;
    return !fails_;
  }
  void Infer(std::function<void()> done) override {
    const std::lock_guard lock(watch_.mu);
    watch_.computing.push_back(std::move(done));
    watch_.changed.notify_all();
  }
  void Postprocess() override {
    std::unique_lock lock(watch_.mu);
    ++watch_.finishing;
    watch_.most_finishing = std::max(watch_.most_finishing, watch_.finishing);
    watch_.changed.notify_all();
    watch_.changed.wait(lock, [&] { return watch_.finish_may_go; });
    --watch_.finishing;
    ++watch_.finished;
    watch_.order.push_back(number_);
    watch_.changed.notify_all();
  }

 private:
  Watch& watch_;
  const int number_;
  const bool fails_;
};

StagePipelineOptions Options(int64_t preprocess, int64_t inference,
                             int64_t postprocess, int64_t max_waiting = 64) {
  return {.model = "m",
          .stages = {.preprocess = preprocess,
                     .inference = inference,
                     .postprocess = postprocess},
          .max_waiting = max_waiting};
}

StagePipeline::Batches Make(Watch& watch, int count) {
  StagePipeline::Batches batches;
  for (int i = 0; i < count; ++i) {
    batches.push_back(std::make_shared<Held>(watch, i));
  }
  return batches;
}

TEST(StagePipeline, AFullStagePushesBackOnTheOneBefore) {
  Watch watch;
  StagePipeline pipeline(Options(1, 2, 1), nullptr);
  ASSERT_TRUE(pipeline.Submit(Make(watch, 20)).ok());
  // Two are computed, and preprocess + inference wait behind them.
  ASSERT_TRUE(watch.Await([&] { return watch.prepared == 5; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  {
    const std::lock_guard lock(watch.mu);
    EXPECT_EQ(watch.prepared, 5);
    EXPECT_EQ(watch.computing.size(), 2u);
    watch.finish_may_go = false;
  }
  // Nobody finishes: one in hand, then the queue of 2 fills, with the two that
  // may be computed meanwhile.
  int released = 0;
  for (int i = 0; i < 50; ++i) {
    released += watch.Release(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  EXPECT_LE(released, 5);
  EXPECT_GE(released, 3);
  {
    const std::lock_guard lock(watch.mu);
    EXPECT_LE(watch.prepared, 5 + released);
    watch.finish_may_go = true;
    watch.changed.notify_all();
  }
  while (watch.Await(
      [&] { return watch.finished == 20 || !watch.computing.empty(); })) {
    if (watch.Release(1) == 0) break;
  }
  EXPECT_EQ(watch.finished, 20);
  EXPECT_EQ(watch.most_finishing, 1);
  EXPECT_TRUE(std::is_sorted(watch.order.begin(), watch.order.end()));
}

TEST(StagePipeline, AFullQueueRefusesAllOfARequest) {
  Watch watch;
  StagePipeline pipeline(Options(1, 1, 1, 4), nullptr);
  ASSERT_TRUE(pipeline.Submit(Make(watch, 3)).ok());
  ASSERT_TRUE(watch.Await([&] { return watch.prepared == 3; }));
  EXPECT_TRUE(pipeline.HasPlace().ok());
  ASSERT_TRUE(pipeline.Submit(Make(watch, 4)).ok());
  const Status full = pipeline.Submit(Make(watch, 1));
  EXPECT_EQ(full.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(pipeline.HasPlace().code(), StatusCode::kResourceExhausted);
  while (watch.Await(
      [&] { return watch.finished == 7 || !watch.computing.empty(); })) {
    if (watch.Release(1) == 0) break;
  }
  EXPECT_EQ(watch.finished, 7);
  EXPECT_TRUE(pipeline.HasPlace().ok());
}

TEST(StagePipeline, WhatFailsInPreparationGoesNoFurther) {
  Watch watch;
  StagePipeline pipeline(Options(2, 1, 1), nullptr);
  StagePipeline::Batches batches;
  for (int i = 0; i < 10; ++i) {
    batches.push_back(std::make_shared<Held>(watch, i, i != 9));
  }
  ASSERT_TRUE(pipeline.Submit(std::move(batches)).ok());
  ASSERT_TRUE(watch.Await([&] { return !watch.computing.empty(); }));
  watch.Release(1);
  ASSERT_TRUE(watch.Await([&] { return watch.finished == 10; }));
  EXPECT_EQ(watch.order, std::vector<int>{9});
}

}  // namespace
}  // namespace millrace::handlers
