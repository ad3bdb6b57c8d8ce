// Every request gets exactly one end: by deadline, cancellation, drain, a dying
// engine or a failing device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "scheduler/engine.h"
#include "tests/unit/scheduler/engine_fixture.h"

namespace millrace::scheduler {
namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;

TEST(EngineEnd, CancelFreesPagesWithinAStep) {
  auto gate = std::make_shared<StepGate>();
  gate->Close();
  auto engine = MakeEngine({.gate = gate});
  std::stop_source stop;
  GenerateTask task = MakeTask(std::vector<int32_t>(100, 1), 100);
  task.stop = stop.get_token();
  Reader reader(MustSubmit(*engine, std::move(task)));
  gate->AwaitBlocked();
  EXPECT_EQ(engine->stats().pages_used, 2);
  stop.request_stop();
  gate->AllowSteps(1);  // the one that runs already, and no other
  EXPECT_EQ(reader.EndCode(), StatusCode::kCancelled);
  EXPECT_EQ(reader.end->output_tokens, 1);
  ExpectAllPagesBack(*engine);
  gate->Open();
}

TEST(EngineEnd, CompletionsAreCounted) {
  FakeClock clock;
  auto gate = std::make_shared<StepGate>();
  gate->Close();
  auto engine =
      MakeEngine({.gate = gate}, {.max_num_seqs = 1, .clock = &clock});
  Reader first(MustSubmit(*engine, MakeTask({1}, 1)));
  gate->AwaitBlocked();
  Reader second(MustSubmit(*engine, MakeTask({1}, 1)));
  std::stop_source stop;
  GenerateTask task = MakeTask({1}, 1);
  task.stop = stop.get_token();
  Reader cancelled(MustSubmit(*engine, std::move(task)));
  stop.request_stop();
  EXPECT_EQ(engine->stats().completions.success.count, 0);
  clock.Advance(seconds(20));
  gate->Open();
  EXPECT_EQ(first.EndCode(), StatusCode::kOk);
  EXPECT_EQ(second.EndCode(), StatusCode::kOk);
  EXPECT_EQ(cancelled.EndCode(), StatusCode::kCancelled);
  const CompletionCounts counts = engine->stats().completions;
  EXPECT_EQ(counts.success.count, 2);
  EXPECT_EQ(counts.success.total, seconds(40));
  EXPECT_EQ(counts.queue.count, 2);
  EXPECT_EQ(counts.queue.total, seconds(20));    // of the second
  EXPECT_EQ(counts.compute.total, seconds(20));  // of the first
  EXPECT_EQ(counts.fail.count, 1);
  EXPECT_EQ(counts.fail.total, seconds(20));
  EXPECT_GT(counts.last_end_ms, 1'700'000'000'000);
}

TEST(EngineEnd, WaitingRequestIsCancelledToo) {
  auto gate = std::make_shared<StepGate>();
  gate->Close();
  auto engine = MakeEngine({.gate = gate}, {.max_num_seqs = 1});
  Reader running(MustSubmit(*engine, MakeTask({1}, 100)));
  std::stop_source stop;
  GenerateTask task = MakeTask({2}, 100);
  task.stop = stop.get_token();
  Reader waiting(MustSubmit(*engine, std::move(task)));
  gate->AwaitBlocked();
  stop.request_stop();
  gate->AllowSteps(1);
  EXPECT_EQ(waiting.EndCode(), StatusCode::kCancelled);
  EXPECT_EQ(waiting.end->output_tokens, 0);
  gate->Open();
  EXPECT_EQ(running.EndCode(), StatusCode::kOk);
}

TEST(EngineEnd, DeadlinesEndRunningAndWaitingRequests) {
  FakeClock clock;
  auto gate = std::make_shared<StepGate>();
  gate->Close();
  auto engine =
      MakeEngine({.gate = gate}, {.max_num_seqs = 1, .clock = &clock});
  const auto submit = [&](seconds in) {
    GenerateTask task = MakeTask({1}, 50);
    task.deadline = clock.Now() + in;
    return MustSubmit(*engine, std::move(task));
  };
  Reader running(submit(seconds(10)));
  Reader waiting(submit(seconds(5)));
  Reader patient(submit(seconds(1000)));
  gate->AwaitBlocked();
  clock.Advance(seconds(20));
  gate->Open();
  EXPECT_EQ(running.EndCode(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(waiting.EndCode(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(patient.EndCode(), StatusCode::kOk);

  const auto late = engine->Reserve(clock.Now());
  EXPECT_EQ(late.status().code(), StatusCode::kDeadlineExceeded);
}

TEST(EngineEnd, DrainLetsWorkFinish) {
  auto engine = MakeEngine({});
  Reader reader(MustSubmit(*engine, MakeTask({1}, 50)));
  EXPECT_TRUE(engine->Drain(Soon()));
  EXPECT_EQ(reader.EndCode(), StatusCode::kOk);
  EXPECT_EQ(reader.tokens.size(), 50u);
  EXPECT_EQ(engine->Reserve().status().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(engine->Drain(Soon()));  // and again
}

// Room for answers that would take the fake model very long to finish.
FakeOptions Endless() { return {.num_pages = 4096, .max_context = 60'000}; }

TEST(EngineEnd, DrainEndsWhatIsLeftAtItsDeadline) {
  auto engine = MakeEngine(Endless(), {.max_num_seqs = 1});
  Reader running(MustSubmit(*engine, MakeTask({1}, 50'000)));
  Reader waiting(MustSubmit(*engine, MakeTask({2}, 50'000)));
  StatusOr<Reservation> held = engine->Reserve();
  ASSERT_TRUE(held.ok());
  ASSERT_TRUE(running.AwaitTokens(1));
  EXPECT_FALSE(engine->Drain(steady_clock::now()));
  EXPECT_EQ(running.EndCode(), StatusCode::kUnavailable);
  EXPECT_EQ(waiting.EndCode(), StatusCode::kUnavailable);
  ExpectAllPagesBack(*engine);
  // A place from before the drain comes too late.
  EXPECT_EQ(engine->Submit(std::move(*held), MakeTask({1}, 1)).status().code(),
            StatusCode::kUnavailable);
}

TEST(EngineEnd, DyingEngineEndsEverything) {
  auto engine = MakeEngine(Endless(), {.max_num_seqs = 2});
  std::vector<Reader> readers;
  for (int i = 0; i < 5; ++i) {
    readers.emplace_back(MustSubmit(*engine, MakeTask({i}, 50'000)));
  }
  StatusOr<Reservation> outlives_it = engine->Reserve();
  ASSERT_TRUE(readers[0].AwaitTokens(1));
  engine.reset();
  for (Reader& reader : readers) {
    EXPECT_EQ(reader.EndCode(), StatusCode::kUnavailable);
  }
}

TEST(EngineEnd, IdleEngineDies) { MakeEngine({}).reset(); }

TEST(EngineEnd, FaultEndsRunningRequestsAndLaterOnesRun) {
  auto gate = std::make_shared<StepGate>();
  gate->Close();
  auto engine =
      MakeEngine({.fault_at_step = 3, .gate = gate}, {.max_num_seqs = 2});
  Reader one(MustSubmit(*engine, MakeTask({1}, 50)));
  Reader two(MustSubmit(*engine, MakeTask({2}, 50)));
  Reader waiting(MustSubmit(*engine, MakeTask({3}, 50)));
  gate->AwaitBlocked();
  gate->AllowSteps(1);
  // The first step began with whatever had arrived; from the second on both
  // slots are taken by the first two.
  gate->AwaitBlocked();
  gate->Open();
  EXPECT_EQ(one.EndCode(), StatusCode::kInternal);
  EXPECT_THAT(std::string(one.end->status.message()),
              testing::HasSubstr("fake device"));
  EXPECT_EQ(two.EndCode(), StatusCode::kInternal);
  EXPECT_EQ(waiting.EndCode(), StatusCode::kOk);
  EXPECT_EQ(waiting.ids(), FakeAnswer({3}, 50, {}));
  Reader later(MustSubmit(*engine, MakeTask({4}, 50)));
  EXPECT_EQ(later.EndCode(), StatusCode::kOk);
  ExpectAllPagesBack(*engine);
}

TEST(EngineEnd, PagesComputedBeforeAFailedStepAreNotLentAfterIt) {
  // Four steps answer the first request; the next step fails, and the fake
  // device loses all that its pages held.
  auto engine = MakeEngine({.fault_at_step = 5});
  const std::vector<int32_t> prompt(300, 7);
  Reader first(MustSubmit(*engine, MakeTask(prompt, 4)));
  EXPECT_EQ(first.EndCode(), StatusCode::kOk);
  EXPECT_EQ(engine->stats().pages_cached, 4);
  Reader failed(MustSubmit(*engine, MakeTask({1}, 4)));
  EXPECT_EQ(failed.EndCode(), StatusCode::kInternal);
  EXPECT_EQ(engine->stats().pages_cached, 0);
  Reader again(MustSubmit(*engine, MakeTask(prompt, 4)));
  EXPECT_EQ(again.EndCode(), StatusCode::kOk);
  EXPECT_EQ(again.end->cached_tokens, 0);
  EXPECT_EQ(again.ids(), FakeAnswer(prompt, 4, {}));
  ExpectAllPagesBack(*engine);
}

TEST(EngineEnd, CompletionsAreTheRateBehindRetryAfter) {
  FakeClock clock;
  auto engine =
      MakeEngine({.clock = &clock, .step_time = seconds(1)},
                 {.max_num_seqs = 1, .max_queue_size = 0, .clock = &clock});
  for (int i = 0; i < 4; ++i) {
    Reader reader(MustSubmit(*engine, MakeTask({1}, 3)));
    EXPECT_EQ(reader.EndCode(), StatusCode::kOk);
  }
  const auto place = engine->Reserve();
  ASSERT_TRUE(place.ok());
  // Each request took three seconds. Without counted completions the estimate
  // would be the twelve seconds of all four.
  const auto refused = engine->Reserve();
  EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
  EXPECT_NEAR(static_cast<double>(refused.status().retry_after_ms()), 3'000,
              500);
}

}  // namespace
}  // namespace millrace::scheduler
