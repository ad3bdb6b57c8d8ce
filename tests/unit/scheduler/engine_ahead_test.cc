// Two steps in flight: the second is planned before it is known what the first
// one draws. Nothing of that shows in what clients get.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "config/base/clock.h"
#include "config/base/metrics.h"
#include "tests/unit/scheduler/engine_fixture.h"

namespace millrace::scheduler {
namespace {

std::shared_ptr<std::atomic<int32_t>> NewCount() {
  return std::make_shared<std::atomic<int32_t>>(0);
}

double Metric(MetricRegistry& registry, const std::string& name) {
  const std::string text = registry.Text();
  const std::string line =
      "millrace_" + name + "_total{model=\"fake\",version=\"1\"} ";
  const size_t at = text.find(line);
  return at == std::string::npos ? -1
                                 : std::stod(text.substr(at + line.size()));
}

TEST(EngineAhead, AllStepsButThoseBehindAnIdleEngineGoAhead) {
  const auto ahead = NewCount();
  MetricRegistry registry;
  auto engine = MakeEngine({.ahead = ahead}, {}, &registry);
  const GenerateTask task = MakeTask({1, 2, 3}, 40);
  Reader reader(MustSubmit(*engine, task));
  ASSERT_EQ(reader.EndCode(), StatusCode::kOk);
  EXPECT_EQ(reader.ids(), FakeAnswer(task.prompt, 40, task.sampling));
  // Where the last token stands is known: no row is computed for nothing.
  EXPECT_EQ(engine->stats().steps, 40);
  EXPECT_EQ(*ahead, 39);
  EXPECT_EQ(Metric(registry, "steps_ahead"), 39);
  EXPECT_EQ(Metric(registry, "discarded_rows"), 0);
  ExpectAllPagesBack(*engine);
}

// Its row in the step behind is discarded, with the page that it took.
TEST(EngineAhead, ACompletionMayStopAtAnyToken) {
  const auto ahead = NewCount();
  MetricRegistry registry;
  auto engine = MakeEngine({.num_pages = 4, .max_context = 200, .ahead = ahead},
                           {.max_num_seqs = 1, .enable_prefix_caching = false},
                           &registry);
  int32_t stops = 0;
  int32_t discarded = 0;
  for (int32_t length = 1; length <= 70; ++length) {
    GenerateTask task = MakeTask(std::vector<int32_t>(60, length), 70);
    task.sampling.seed = 7;
    const auto whole = FakeAnswer(task.prompt, 70, task.sampling);
    task.sampling.stop_ids = {whole[static_cast<size_t>(length) - 1]};
    const auto expected = FakeAnswer(task.prompt, 70, task.sampling);
    // The one behind it takes over its slot, and maybe its pages.
    Reader first(MustSubmit(*engine, task));
    Reader second(MustSubmit(*engine, task));
    ASSERT_EQ(first.EndCode(), StatusCode::kOk);
    ASSERT_EQ(second.EndCode(), StatusCode::kOk);
    EXPECT_EQ(first.ids(), expected);
    EXPECT_EQ(second.ids(), expected);
    EXPECT_EQ(first.end->reason, FinishReason::kStop);
    stops += 2;
    discarded += expected.size() < 70 ? 2 : 0;
  }
  ExpectAllPagesBack(*engine);
  EXPECT_EQ(Metric(registry, "discarded_rows"), discarded);
  EXPECT_GT(discarded, stops / 2);
}

// Rows of a failed step, and of the one behind it, were no results.
TEST(EngineAhead, AFailedStepDiscardsNoRows) {
  const auto ahead = NewCount();
  MetricRegistry registry;
  auto engine = MakeEngine({.fault_at_step = 5, .ahead = ahead}, {}, &registry);
  Reader failed(MustSubmit(*engine, MakeTask({1, 2, 3}, 40)));
  EXPECT_EQ(failed.EndCode(), StatusCode::kInternal);
  EXPECT_EQ(engine->stats().steps, 6);
  EXPECT_EQ(*ahead, 5);
  EXPECT_EQ(Metric(registry, "discarded_rows"), 0);
  const GenerateTask task = MakeTask({4, 5}, 9);
  Reader next(MustSubmit(*engine, task));
  ASSERT_EQ(next.EndCode(), StatusCode::kOk);
  EXPECT_EQ(next.ids(), FakeAnswer(task.prompt, 9, task.sampling));
  ExpectAllPagesBack(*engine);
}

// Else its time would be that until the next request.
TEST(EngineAhead, TheStepBehindAnEndIsReadThoughNobodyAsks) {
  FakeClock clock;
  const auto ahead = NewCount();
  auto engine = MakeEngine({.clock = &clock,
                            .step_time = std::chrono::milliseconds(1),
                            .ahead = ahead});
  GenerateTask task = MakeTask({1, 2, 3}, 40);
  task.sampling.seed = 7;
  const auto whole = FakeAnswer(task.prompt, 40, task.sampling);
  task.sampling.stop_ids = {whole[9]};
  const Clock::Time begun = clock.Now();
  Reader reader(MustSubmit(*engine, task));
  ASSERT_EQ(reader.EndCode(), StatusCode::kOk);
  ASSERT_EQ(reader.end->reason, FinishReason::kStop);
  const auto all = std::chrono::milliseconds(1 + *ahead);
  for (int i = 0; i < 500 && clock.Now() - begun < all; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(clock.Now() - begun, all);
}

TEST(EngineAhead, PromptsAreReadInChunksThatFollowOneAnother) {
  const auto ahead = NewCount();
  auto engine = MakeEngine({.ahead = ahead}, {.max_num_batched_tokens = 16});
  const GenerateTask task = MakeTask(std::vector<int32_t>(160, 5), 4);
  Reader reader(MustSubmit(*engine, task));
  ASSERT_EQ(reader.EndCode(), StatusCode::kOk);
  EXPECT_EQ(reader.ids(), FakeAnswer(task.prompt, 4, task.sampling));
  EXPECT_EQ(engine->stats().steps, 10 + 3);
  EXPECT_EQ(*ahead, 10 + 3 - 1);
}

TEST(EngineAhead, NoStepGoesAheadOfOneThatDrawsOnTheHost) {
  const auto ahead = NewCount();
  auto engine = MakeEngine({.ahead = ahead});
  GenerateTask task = MakeTask({1, 2, 3}, 20);
  task.sampling.repetition_penalty = 1.2f;
  Reader reader(MustSubmit(*engine, task));
  ASSERT_EQ(reader.EndCode(), StatusCode::kOk);
  EXPECT_EQ(reader.ids(), FakeAnswer(task.prompt, 20, task.sampling));
  EXPECT_EQ(*ahead, 0);
}

// Both steps are worthless then, and the engine goes on.
TEST(EngineAhead, AFaultEndsAllThatRuns) {
  for (const int32_t fault : {1, 2, 5}) {
    const auto ahead = NewCount();
    auto engine = MakeEngine({.fault_at_step = fault, .ahead = ahead});
    const GenerateTask task = MakeTask({1, 2, 3}, 20);
    Reader broken(MustSubmit(*engine, task));
    EXPECT_EQ(broken.EndCode(), StatusCode::kInternal);
    Reader after(MustSubmit(*engine, task));
    ASSERT_EQ(after.EndCode(), StatusCode::kOk);
    EXPECT_EQ(after.ids(), FakeAnswer(task.prompt, 20, task.sampling));
    EXPECT_GT(*ahead, 0);
    ExpectAllPagesBack(*engine);
  }
}

// Text that repeats itself is drafted, text that does not goes ahead.
TEST(EngineAhead, DraftTokensAreCheckedWhereThereAreAny) {
  for (const float temperature : {0.0f, 1.0f}) {
    const auto ahead = NewCount();
    MetricRegistry registry;
    FakeClock clock;
    EngineOptions options = {.clock = &clock};
    options.speculative.num_tokens = 4;
    auto engine = MakeEngine({.clock = &clock,
                              .step_time = std::chrono::milliseconds(5),
                              .row_time = std::chrono::microseconds(10),
                              .ahead = ahead},
                             options, &registry);
    std::vector<GenerateTask> tasks;
    std::vector<Reader> readers;
    for (int32_t i = 0; i < 3; ++i) {
      tasks.push_back(MakeTask(std::vector<int32_t>(30 + 40 * i, i), 300));
      tasks.back().sampling.temperature = temperature;
      readers.emplace_back(MustSubmit(*engine, tasks.back()));
    }
    for (size_t i = 0; i < tasks.size(); ++i) {
      ASSERT_EQ(readers[i].EndCode(), StatusCode::kOk);
      EXPECT_EQ(readers[i].ids(),
                FakeAnswer(tasks[i].prompt, 300, tasks[i].sampling));
    }
    EXPECT_GT(*ahead, 0) << temperature;
    EXPECT_EQ(Metric(registry, "spec_decode_num_accepted_tokens") > 20,
              temperature == 0);
    ExpectAllPagesBack(*engine);
  }
}

}  // namespace
}  // namespace millrace::scheduler
