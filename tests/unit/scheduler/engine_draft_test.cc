// The engine with a draft model, on a clock that only the fake runners move:
// draft tokens where they pay, none where they do not, and never another
// answer.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "config/base/metrics.h"
#include "tests/unit/scheduler/engine_fixture.h"
#include "tests/unit/scheduler/fake_draft.h"

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

GenerateTask Greedy(int32_t num_prompt, int32_t salt, int32_t max_tokens) {
  GenerateTask task = MakeTask(Prompt(num_prompt, salt), max_tokens);
  task.sampling.temperature = 0;
  return task;
}

// An engine of 5 ms a step and 0.1 ms a row, with a draft model.
struct World {
  explicit World(FakeDraftOptions draft, FakeOptions fake = {},
                 EngineOptions options = {}) {
    draft.clock = fake.clock = &clock;
    if (fake.step_time == Clock::Duration(0)) {
      fake.step_time = milliseconds(5);
      fake.row_time = microseconds(100);
    }
    options.model = "fake";
    options.clock = &clock;
    if (options.speculative.num_tokens == 0) {
      options.speculative.num_tokens = 5;
    }
    auto fake_draft = std::make_unique<FakeDraft>(draft);
    this->draft = fake_draft.get();
    engine = Engine::Create(std::make_unique<FakeRunner>(fake), options,
                            &registry, std::move(fake_draft));
  }
  double Metric(const std::string& name) {
    const std::string text = registry.Text();
    const std::string line = "millrace_spec_decode_" + name +
                             "_total{model=\"fake\",version=\"1\"} ";
    const size_t at = text.find(line);
    return at == std::string::npos ? -1
                                   : std::stod(text.substr(at + line.size()));
  }
  double drafted() { return Metric("num_draft_tokens"); }
  double accepted() { return Metric("num_accepted_tokens"); }
  // A token is accepted behind those before it in its draft.
  void ExpectPlacesAddUp(int places) {
    const std::string text = registry.Text();
    double sum = 0;
    double before = Metric("num_drafts");
    EXPECT_GT(before, 0);
    EXPECT_GE(drafted(), before);
    for (int i = 0; i < places; ++i) {
      const std::string line =
          "millrace_spec_decode_num_accepted_tokens_per_pos_total{model="
          "\"fake\",position=\"" +
          std::to_string(i) + "\",version=\"1\"} ";
      const size_t at = text.find(line);
      ASSERT_NE(at, std::string::npos) << line;
      const double here = std::stod(text.substr(at + line.size()));
      EXPECT_LE(here, before) << i;
      before = here;
      sum += here;
    }
    EXPECT_EQ(sum, accepted());
    EXPECT_EQ(text.find("position=\"" + std::to_string(places) + "\""),
              std::string::npos);
  }

  void ExpectAnswer(const GenerateTask& task, Reader& reader) {
    ASSERT_EQ(reader.EndCode(), StatusCode::kOk);
    EXPECT_EQ(reader.ids(),
              FakeAnswer(task.prompt, task.max_tokens, task.sampling));
  }
  void ExpectNothingHeld() {
    ExpectAllPagesBack(*engine);
    EXPECT_EQ(engine->stats().draft_pages_used, 0);
  }

  FakeClock clock;
  MetricRegistry registry;
  const FakeDraft* draft;
  std::unique_ptr<Engine> engine;
};

constexpr FakeDraftOptions kCheap = {.step_time = microseconds(500),
                                     .row_time = microseconds(10)};

FakeDraftOptions Cheap(int32_t right_of_8) {
  FakeDraftOptions options = kCheap;
  options.right_of_8 = right_of_8;
  return options;
}

TEST(EngineDraft, DraftsThatAreAlwaysRightSaveFourStepsOfFive) {
  World world(Cheap(8));
  const GenerateTask task = Greedy(20, 1, 600);
  Reader reader(MustSubmit(*world.engine, task));
  world.ExpectAnswer(task, reader);
  EXPECT_LT(world.engine->stats().steps, 130);
  EXPECT_EQ(world.accepted(), world.drafted())
      << "what its pages held was true";
  EXPECT_EQ(world.engine->stats().steps + world.accepted(), 600);
  EXPECT_GT(world.Metric("draft_seconds"), 0.0);
  world.ExpectNothingHeld();
}

TEST(EngineDraft, DraftsThatAreAlwaysWrongStop) {
  World world(Cheap(0));
  const GenerateTask task = Greedy(20, 1, 600);
  Reader reader(MustSubmit(*world.engine, task));
  world.ExpectAnswer(task, reader);
  EXPECT_EQ(world.accepted(), 0);
  EXPECT_LT(world.drafted(), 30);
  EXPECT_LT(world.draft->steps(), 120) << "trials take a hundredth of the time";
}

TEST(EngineDraft, AModelAsSlowAsItsTargetIsTriedAndLeftAlone) {
  World world({.step_time = milliseconds(5), .row_time = microseconds(100)});
  for (int32_t salt = 0; salt < 6; ++salt) {
    const GenerateTask task = Greedy(20, salt, 300);
    Reader reader(MustSubmit(*world.engine, task));
    world.ExpectAnswer(task, reader);
  }
  // 1800 steps of 5.1 ms: 92 ms for trials, after those that learn prices. One
  // with a new sequence takes 12 ms.
  EXPECT_LT(world.draft->steps(), 30);
  EXPECT_GT(world.draft->steps(), 4 + 6);
}

TEST(EngineDraft, DraftsThatAreSometimesRightSaveSomeSteps) {
  World world(Cheap(6));
  std::vector<GenerateTask> tasks;
  std::vector<Reader> readers;
  for (int32_t salt = 0; salt < 8; ++salt) {
    tasks.push_back(Greedy(10 + 30 * salt, salt, 200));
    readers.emplace_back(MustSubmit(*world.engine, tasks.back()));
  }
  for (size_t i = 0; i < tasks.size(); ++i) {
    world.ExpectAnswer(tasks[i], readers[i]);
  }
  EXPECT_GT(world.accepted(), 300);
  EXPECT_GT(world.drafted(), world.accepted());
  world.ExpectNothingHeld();
}

TEST(EngineDraft, AFullBatchWhoseRowsAreDearIsNotDraftedFor) {
  World world(Cheap(6), {.num_pages = 200,
                         .step_time = milliseconds(1),
                         .row_time = milliseconds(2)});
  std::vector<GenerateTask> tasks;
  std::vector<Reader> readers;
  for (int32_t salt = 0; salt < 16; ++salt) {
    tasks.push_back(Greedy(20, salt, 100));
    readers.emplace_back(MustSubmit(*world.engine, tasks.back()));
  }
  for (size_t i = 0; i < tasks.size(); ++i) {
    world.ExpectAnswer(tasks[i], readers[i]);
  }
  EXPECT_LT(world.drafted(), 80);
}

TEST(EngineDraft, AnswersAreTheSameUnderPreemptionSamplingAndShortDrafts) {
  int64_t preemptions = 0;
  for (const int32_t draft_pages : {64, 6, 1}) {
    for (const int32_t max_tokens : {512, 20, 3}) {
      SCOPED_TRACE("draft pages " + std::to_string(draft_pages) +
                   ", tokens a step " + std::to_string(max_tokens));
      FakeDraftOptions draft = Cheap(7);
      draft.num_pages = draft_pages;
      draft.max_context = 250;
      draft.max_tokens = 40;
      World world(draft, {.num_pages = 14},
                  {.max_num_batched_tokens = max_tokens,
                   .speculative = {.num_tokens = 6, .always = true}});
      std::vector<GenerateTask> tasks;
      std::vector<Reader> readers;
      std::vector<std::shared_ptr<ForkGroup>> fork_groups;
      for (int32_t i = 0; i < 12; ++i) {
        // Prompts begin alike; some are siblings, drawn with other seeds.
        GenerateTask task = Greedy(20 + 60 * (i % 4), 7 * (i % 2), 120);
        if (i % 3 == 0) task.sampling.temperature = 1;
        task.sampling.seed = static_cast<uint64_t>(i % 5);
        task.sampling.logprobs = true;
        task.prompt_logprobs = i % 6 == 5;
        if (i % 4 == 1) fork_groups.push_back(std::make_shared<ForkGroup>());
        if (i % 4 == 1 || i % 4 == 2) {
          task.prompt = Prompt(100, 3);
          task.fork_group = fork_groups.back();
        }
        tasks.push_back(task);
        readers.emplace_back(MustSubmit(*world.engine, task));
      }
      for (size_t i = 0; i < tasks.size(); ++i) {
        world.ExpectAnswer(tasks[i], readers[i]);
      }
      preemptions += world.engine->stats().preemptions;
      EXPECT_GT(world.accepted(), 0);
      world.ExpectPlacesAddUp(6);
      world.ExpectNothingHeld();
    }
  }
  EXPECT_GT(preemptions, 0);
}

TEST(EngineDraft, ACancelledSequenceLeavesTheDraftModelsPages) {
  World world(Cheap(8), {}, {.speculative = {.num_tokens = 3, .always = true}});
  std::stop_source stop;
  GenerateTask task = Greedy(100, 1, 900);
  task.stop = stop.get_token();
  Reader reader(MustSubmit(*world.engine, std::move(task)));
  ASSERT_TRUE(reader.AwaitTokens(20));
  stop.request_stop();
  ASSERT_TRUE(reader.AwaitEnd());
  world.ExpectNothingHeld();
}

TEST(EngineDraft, ADraftModelThatFailsIsSwitchedOff) {
  FakeDraftOptions draft = Cheap(8);
  draft.fault_at_step = 30;
  World world(draft);
  const GenerateTask task = Greedy(20, 1, 300);
  Reader reader(MustSubmit(*world.engine, task));
  world.ExpectAnswer(task, reader);
  EXPECT_EQ(world.draft->steps(), 30);
  world.ExpectNothingHeld();
}

}  // namespace
}  // namespace millrace::scheduler
