// The engine with predictions of clients, on a clock that only the fake runners
// move: fewer steps where they are right, and never another answer.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "tests/unit/scheduler/engine_fixture.h"
#include "tests/unit/scheduler/fake_draft.h"

namespace millrace::scheduler {
namespace {

// An engine of 5 ms a step and 0.1 ms a row.
struct World {
  explicit World(bool has_draft_model = false) {
    FakeOptions fake = {.clock = &clock,
                        .step_time = std::chrono::milliseconds(5),
                        .row_time = std::chrono::microseconds(100)};
    EngineOptions options = {
        .model = "fake", .speculative = {.num_tokens = 5}, .clock = &clock};
    std::unique_ptr<models::Runner> draft;
    if (has_draft_model) {  // as slow as the model: it is never worth it
      draft = std::make_unique<FakeDraft>(
          FakeDraftOptions{.clock = &clock,
                           .step_time = std::chrono::milliseconds(5),
                           .row_time = std::chrono::microseconds(100)});
    }
    engine = Engine::Create(std::make_unique<FakeRunner>(fake), options,
                            nullptr, std::move(draft));
  }
  // Its end, once the answer is what it is without a prediction.
  StreamEnd Answer(const GenerateTask& task) {
    Reader reader(MustSubmit(*engine, task));
    EXPECT_EQ(reader.EndCode(), StatusCode::kOk);
    EXPECT_EQ(reader.ids(),
              FakeAnswer(task.prompt, task.max_tokens, task.sampling));
    ExpectAllPagesBack(*engine);
    return *reader.end;
  }
  int64_t steps() const { return engine->stats().steps; }

  FakeClock clock;
  std::unique_ptr<Engine> engine;
};

// Drawn, so that the text does not repeat itself and look-ups find nothing.
GenerateTask Task(int32_t max_tokens) {
  GenerateTask task = MakeTask({11, 12, 13, 14}, max_tokens);
  task.sampling.temperature = 1;
  task.sampling.seed = 3;
  return task;
}

std::vector<int32_t> AnswerOf(const GenerateTask& task) {
  return FakeAnswer(task.prompt, task.max_tokens, task.sampling);
}

TEST(EnginePrediction, TheAnswerItselfSavesFourStepsOfFive) {
  for (const bool has_draft_model : {false, true}) {
    World world(has_draft_model);
    GenerateTask task = Task(300);
    task.prediction = AnswerOf(task);
    const StreamEnd end = world.Answer(task);
    EXPECT_LT(world.steps(), 75);
    EXPECT_GT(end.prediction.accepted, 225);
    EXPECT_EQ(end.prediction.rejected, 0);
    EXPECT_EQ(world.steps() + end.prediction.accepted, 300);
  }
}

TEST(EnginePrediction, AnEditGoesOnBehindItsChanges) {
  World world;
  GenerateTask task = Task(300);
  task.prediction = AnswerOf(task);
  for (const size_t changed : {50, 51, 120, 200}) {
    task.prediction[changed] = (task.prediction[changed] + 1) % kFakeVocab;
  }
  task.prediction.erase(task.prediction.begin() + 250,
                        task.prediction.begin() + 260);
  const StreamEnd end = world.Answer(task);
  EXPECT_LT(world.steps(), 110);
  EXPECT_GT(end.prediction.accepted, 190);
  EXPECT_GE(end.prediction.rejected, 4);
  EXPECT_LT(end.prediction.rejected, 30);
}

TEST(EnginePrediction, AWrongOneCostsLittle) {
  World world;
  GenerateTask task = Task(300);
  task.prediction = std::vector<int32_t>(1000, 7);
  const StreamEnd end = world.Answer(task);
  EXPECT_EQ(end.prediction.accepted, 0);
  EXPECT_LT(end.prediction.rejected, 20);
  GenerateTask none = Task(20);
  EXPECT_EQ(world.Answer(none).prediction.rejected, 0);
}

TEST(EnginePrediction, ItsIdsMustExist) {
  World world;
  GenerateTask task = Task(3);
  task.prediction = {1, kFakeVocab};
  auto place = world.engine->Reserve();
  ASSERT_TRUE(place.ok());
  const auto stream = world.engine->Submit(std::move(*place), std::move(task));
  EXPECT_EQ(stream.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(stream.status().field(), "prediction");
}

}  // namespace
}  // namespace millrace::scheduler
