// What the engine does with the price of a step, on a clock that only the fake
// runner moves: prompts that leave answers under way in time, and draft tokens
// where they pay.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <vector>

#include "config/base/metrics.h"
#include "scheduler/hold_back.h"
#include "tests/unit/scheduler/engine_fixture.h"

namespace millrace::scheduler {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

std::vector<int32_t> Prompt(int32_t length, int32_t salt) {
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < length; ++i) {
    prompt.push_back((i * 37 + salt) % kFakeVocab);
  }
  return prompt;
}

// The value of a metric that has no labels but the model's.
double Metric(MetricRegistry& registry, const std::string& name) {
  const std::string text = registry.Text();
  const std::string line = name + "{model=\"fake\",version=\"1\"} ";
  const size_t at = text.find(line);
  return at == std::string::npos ? -1
                                 : std::stod(text.substr(at + line.size()));
}

enum class Asking { kOneTenant, kTwoTenants };

// Steps that the long prompt took beside an answer under way, of one tenant.
// With kTwoTenants another one asked a moment before.
int64_t StepsBesideAnAnswer(milliseconds target,
                            Asking asking = Asking::kOneTenant) {
  FakeClock clock;
  auto gate = std::make_shared<StepGate>();
  auto engine = MakeEngine({.num_pages = 200,
                            .max_context = 4096,
                            .max_tokens = 512,
                            .gate = gate,
                            .clock = &clock,
                            .step_time = milliseconds(2),
                            .row_time = microseconds(500)},
                           {.target_itl = target, .clock = &clock});
  const auto task = [&](uint32_t tenant, int32_t num_prompt, int32_t salt,
                        int32_t max_output) {
    GenerateTask made = MakeTask(Prompt(num_prompt, salt), max_output);
    if (asking == Asking::kTwoTenants) {
      made.tenant = {.id = tenant, .alone = false};
    }
    return made;
  };
  if (asking == Asking::kTwoTenants) {
    EXPECT_EQ(Reader(MustSubmit(*engine, task(2, 40, 3, 1))).EndCode(),
              StatusCode::kOk);
  }
  gate->Close();
  Reader answer(MustSubmit(*engine, task(1, 300, 1, 400)));
  gate->AllowSteps(50);
  gate->AwaitBlocked();
  const int64_t before = engine->stats().steps;
  Reader reading(MustSubmit(*engine, task(1, 3000, 2, 1)));
  int64_t steps = 0;
  while (!reading.end && steps < 300) {
    gate->AllowSteps(1);
    gate->AwaitBlocked();
    steps = engine->stats().steps - before;
    if (engine->stats().waiting + engine->stats().running < 2) break;
  }
  gate->Open();
  EXPECT_EQ(reading.EndCode(), StatusCode::kOk);
  EXPECT_EQ(answer.EndCode(), StatusCode::kOk);
  EXPECT_EQ(answer.ids(), FakeAnswer(Prompt(300, 1), 400, {}));
  return steps;
}

TEST(EnginePace, PromptsLeaveAnswersInTime) {
  // 3,000 rows of half a millisecond: at most 511 a step when nobody minds,
  // about 47 beside an answer whose tokens are to come every 25 ms.
  EXPECT_NEAR(static_cast<double>(StepsBesideAnAnswer(milliseconds(0))), 6, 2);
  EXPECT_NEAR(static_cast<double>(StepsBesideAnAnswer(milliseconds(25))), 65,
              10);
}

TEST(EnginePace, StepsBesideDecodesAreShorterWhileSeveralTenantsAsk) {
  // A tenth of 250 ms, as above; a fifth would take 32 steps, all of it 6.
  const milliseconds target(250);
  EXPECT_NEAR(
      static_cast<double>(StepsBesideAnAnswer(target, Asking::kTwoTenants)), 65,
      10);
  EXPECT_NEAR(
      static_cast<double>(StepsBesideAnAnswer(target, Asking::kOneTenant)), 6,
      2);
}

// Steps that a prompt of tenant 1 takes, which knows of others.
int64_t StepsOfPrompt(Engine& engine, int32_t salt) {
  const int64_t before = engine.stats().steps;
  GenerateTask task = MakeTask(Prompt(600, salt), 1);
  task.tenant = {.id = 1, .alone = false};
  EXPECT_EQ(Reader(MustSubmit(engine, task)).EndCode(), StatusCode::kOk);
  return engine.stats().steps - before;
}

TEST(EnginePace, StepsAreShortWhileSeveralTenantsAsk) {
  FakeClock clock;
  auto engine = MakeEngine({.num_pages = 200,
                            .max_context = 4096,
                            .max_tokens = 512,
                            .clock = &clock,
                            .step_time = milliseconds(2),
                            .row_time = microseconds(500)},
                           {.enable_prefix_caching = false,
                            .target_itl = milliseconds(100),
                            .clock = &clock});
  // The engine learns the price of a row.
  for (int32_t i = 0; i < 20; ++i) StepsOfPrompt(*engine, i);
  // Two steps of 512 rows at most; of 20 ms there would be 17.
  EXPECT_EQ(StepsOfPrompt(*engine, 20), 2);
  GenerateTask other = MakeTask(Prompt(40, 21), 1);
  other.tenant = {.id = 2, .alone = false};
  ASSERT_EQ(Reader(MustSubmit(*engine, other)).EndCode(), StatusCode::kOk);
  EXPECT_NEAR(static_cast<double>(StepsOfPrompt(*engine, 22)), 17, 3);
  clock.Advance(AskingTenants::kRecent);
  EXPECT_EQ(StepsOfPrompt(*engine, 23), 2);
}

// Pages of a flood of prompts for which memory was first found within a step.
int32_t UnpreparedPages(Asking asking) {
  FakeClock clock;
  auto gate = std::make_shared<StepGate>();
  auto unprepared = std::make_shared<std::atomic<int32_t>>(0);
  auto engine = MakeEngine({.num_pages = 400,
                            .max_context = 4096,
                            .gate = gate,
                            .clock = &clock,
                            .unprepared = unprepared},
                           {.clock = &clock});
  const auto ask = [&](uint32_t tenant, int32_t num_prompt, int32_t salt) {
    GenerateTask task = MakeTask(Prompt(num_prompt, salt), 1);
    task.tenant = {.id = tenant, .alone = false};
    return std::make_unique<Reader>(MustSubmit(*engine, task));
  };
  if (asking == Asking::kTwoTenants) {
    EXPECT_EQ(ask(2, 40, 1)->EndCode(), StatusCode::kOk);
  }
  gate->Close();
  std::vector<std::unique_ptr<Reader>> flood;
  flood.push_back(ask(1, 1280, 2));
  gate->AwaitBlocked();
  for (int32_t i = 3; i < 8; ++i) flood.push_back(ask(1, 1280, i));
  gate->Open();
  for (const auto& each : flood) EXPECT_EQ(each->EndCode(), StatusCode::kOk);
  return *unprepared;
}

TEST(EnginePace, MemoryOfPagesIsFoundBetweenStepsWhileSeveralTenantsAsk) {
  EXPECT_EQ(UnpreparedPages(Asking::kTwoTenants), 0);
  // 120 pages, 64 of them before the flood.
  EXPECT_NEAR(UnpreparedPages(Asking::kOneTenant), 56, 5);
}

TEST(EnginePace, DraftsSaveStepsAndChangeNoCompletion) {
  MetricRegistry registry;
  FakeClock clock;
  auto engine = MakeEngine({.clock = &clock,
                            .step_time = milliseconds(5),
                            .row_time = microseconds(100)},
                           {.speculative = {.num_tokens = 5}, .clock = &clock},
                           &registry);
  GenerateTask task = MakeTask(Prompt(20, 1), 500);
  task.sampling.temperature = 0;
  task.sampling.logprobs = true;
  Reader reader(MustSubmit(*engine, task));
  ASSERT_EQ(reader.EndCode(), StatusCode::kOk);
  EXPECT_EQ(reader.ids(), FakeAnswer(task.prompt, 500, task.sampling));
  std::vector<int32_t> tokens = task.prompt;
  for (const TokenEvent& event : reader.tokens) {
    EXPECT_EQ(event.logprob, FakeLogprob(tokens, event.id));
    tokens.push_back(event.id);
  }
  const double drafted =
      Metric(registry, "millrace_spec_decode_num_draft_tokens_total");
  const double accepted =
      Metric(registry, "millrace_spec_decode_num_accepted_tokens_total");
  EXPECT_EQ(engine->stats().steps + static_cast<int64_t>(accepted), 500);
  EXPECT_LT(engine->stats().steps, 300);
  EXPECT_GT(accepted, drafted / 3);
  ExpectAllPagesBack(*engine);
}

TEST(EnginePace, NothingIsDraftedWhereRowsAreDear) {
  MetricRegistry registry;
  FakeClock clock;
  auto engine = MakeEngine({.clock = &clock, .row_time = milliseconds(1)},
                           {.speculative = {.num_tokens = 5}, .clock = &clock},
                           &registry);
  GenerateTask task = MakeTask(Prompt(20, 1), 300);
  task.sampling.temperature = 0;
  Reader reader(MustSubmit(*engine, task));
  ASSERT_EQ(reader.EndCode(), StatusCode::kOk);
  EXPECT_EQ(reader.ids(), FakeAnswer(task.prompt, 300, task.sampling));
  EXPECT_LE(Metric(registry, "millrace_spec_decode_num_draft_tokens_total"),
            30);
}

TEST(EnginePace, AnAcceptedDraftMayEndTheCompletion) {
  FakeClock clock;
  auto engine = MakeEngine({.clock = &clock,
                            .step_time = milliseconds(5),
                            .row_time = microseconds(1)},
                           {.speculative = {.num_tokens = 8}, .clock = &clock});
  for (int32_t salt = 0; salt < 30; ++salt) {
    GenerateTask task = MakeTask(Prompt(20, salt), 400);
    task.sampling.temperature = 0;
    task.sampling.stop_ids = {39};
    task.sampling.min_tokens = 150 + 7 * salt;
    Reader reader(MustSubmit(*engine, task));
    ASSERT_EQ(reader.EndCode(), StatusCode::kOk);
    EXPECT_EQ(reader.ids(), FakeAnswer(task.prompt, 400, task.sampling));
  }
  ExpectAllPagesBack(*engine);
}

}  // namespace
}  // namespace millrace::scheduler
