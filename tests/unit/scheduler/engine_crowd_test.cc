// Many at once: results do not depend on batch-mates, chunking or preemption,
// and pages survive whatever clients do.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <random>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "scheduler/engine.h"
#include "tests/unit/scheduler/engine_fixture.h"

namespace millrace::scheduler {
namespace {

int32_t Uniform(std::mt19937& random, int32_t low, int32_t high) {
  return std::uniform_int_distribution<int32_t>(low, high)(random);
}

GenerateTask RandomTask(std::mt19937& random, int32_t max_context) {
  GenerateTask task;
  const int32_t num_prompt = Uniform(random, 1, max_context - 1);
  for (int32_t i = 0; i < num_prompt; ++i) {
    task.prompt.push_back(Uniform(random, 0, kFakeVocab - 1));
  }
  task.max_tokens = Uniform(random, 1, std::min(150, max_context - num_prompt));
  task.prompt_logprobs = Uniform(random, 0, 3) == 0;
  task.priority = Uniform(random, 0, 2);
  task.sampling.seed = static_cast<uint64_t>(random());
  for (int32_t i = Uniform(random, 0, 8); i > 0; --i) {
    task.sampling.stop_ids.push_back(Uniform(random, 0, kFakeVocab - 1));
  }
  task.sampling.min_tokens = Uniform(random, 0, 20);
  task.sampling.top_logprobs = Uniform(random, 0, 3);
  // Draws on the host: no step goes ahead of one that has it.
  if (Uniform(random, 0, 15) == 0) task.sampling.repetition_penalty = 1.2f;
  return task;
}

void ExpectAsIfAlone(const GenerateTask& task, Reader& reader) {
  ASSERT_TRUE(reader.AwaitEnd());
  ASSERT_TRUE(reader.end->status.ok()) << reader.end->status.ToString();
  const auto expected = FakeAnswer(task.prompt, task.max_tokens, task.sampling);
  EXPECT_EQ(reader.ids(), expected);
  std::vector<int32_t> tokens = task.prompt;
  for (const TokenEvent& event : reader.tokens) {
    EXPECT_EQ(event.logprob, FakeLogprob(tokens, event.id));
    tokens.push_back(event.id);
  }
  // Each prompt token is scored once, also when it was computed twice.
  ASSERT_EQ(reader.prompt.size(),
            task.prompt_logprobs ? task.prompt.size() - 1 : 0);
  for (size_t i = 0; i < reader.prompt.size(); ++i) {
    EXPECT_EQ(reader.prompt[i].id, task.prompt[i + 1]);
    EXPECT_EQ(
        reader.prompt[i].logprob,
        FakeLogprob(std::span(task.prompt).first(i + 1), task.prompt[i + 1]));
  }
}

// One round of a random engine and a random crowd; gives its preemptions.
// Steps may be launched `ahead`, and are counted there.
int64_t RunCrowd(uint32_t seed,
                 std::shared_ptr<std::atomic<int32_t>> ahead = nullptr) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  FakeOptions fake;
  fake.max_context = Uniform(random, 65, 300);
  fake.num_pages = Uniform(random, 5, 16);
  const int32_t budget = std::vector{1, 3, 16, 512}[Uniform(random, 0, 3)];
  fake.max_seqs = Uniform(random, 1, 16);
  fake.max_samples = Uniform(random, 1, 40);
  fake.max_tokens = std::max(budget, fake.max_seqs);  // as real runners do
  fake.ahead = std::move(ahead);
  auto engine = MakeEngine(fake, {.max_num_batched_tokens = budget});
  std::vector<GenerateTask> tasks;
  std::vector<Reader> readers;
  const int32_t num_tasks = Uniform(random, 1, 24);
  for (int32_t i = 0; i < num_tasks; ++i) {
    tasks.push_back(RandomTask(random, engine->info().max_context));
    readers.emplace_back(MustSubmit(*engine, tasks.back()));
  }
  for (int32_t i = 0; i < num_tasks; ++i) {
    ExpectAsIfAlone(tasks[i], readers[i]);
  }
  ExpectAllPagesBack(*engine);
  return engine->stats().preemptions;
}

TEST(EngineCrowd, AnswersAreTheSameAloneAndInACrowd) {
  int64_t preemptions = 0;
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    preemptions += RunCrowd(seed);
    if (testing::Test::HasFailure()) break;
  }
  EXPECT_GT(preemptions, 0) << "the crowds were meant to run out of pages";
}

// Of step n + 1, planned before what step n draws is known, nothing shows.
TEST(EngineCrowd, AnswersAreTheSameWithTwoStepsInFlight) {
  const auto ahead = std::make_shared<std::atomic<int32_t>>(0);
  int64_t preemptions = 0;
  for (uint32_t seed = 1; seed <= 80; ++seed) {
    preemptions += RunCrowd(seed, ahead);
    if (testing::Test::HasFailure()) break;
  }
  EXPECT_GT(preemptions, 0) << "the crowds were meant to run out of pages";
  EXPECT_GT(*ahead, 1000);
}

TEST(EngineCrowd, PreemptedSequencesAnswerAsIfTheyHadNotBeen) {
  // 6 pages for 4 sequences that grow to 3 pages each.
  auto engine = MakeEngine({.num_pages = 6, .max_seqs = 4});
  std::vector<GenerateTask> tasks;
  std::vector<Reader> readers;
  for (int32_t i = 0; i < 4; ++i) {
    tasks.push_back(MakeTask(std::vector<int32_t>(40, i), 150));
    tasks.back().prompt_logprobs = true;
    readers.emplace_back(MustSubmit(*engine, tasks.back()));
  }
  for (int32_t i = 0; i < 4; ++i) ExpectAsIfAlone(tasks[i], readers[i]);
  EXPECT_GT(engine->stats().preemptions, 0);
  ExpectAllPagesBack(*engine);
}

TEST(EngineCrowd, DecodesMissNoStepForASmallTokenBudget) {
  auto gate = std::make_shared<StepGate>();
  gate->Close();
  auto engine = MakeEngine({.max_seqs = 8, .gate = gate},
                           {.max_num_seqs = 8, .max_num_batched_tokens = 2});
  std::vector<GenerateTask> tasks;
  std::vector<Reader> readers;
  for (int32_t i = 0; i < 8; ++i) {
    tasks.push_back(MakeTask({i}, 100));
    readers.emplace_back(MustSubmit(*engine, tasks.back()));
  }
  gate->Open();
  for (int32_t i = 0; i < 8; ++i) ExpectAsIfAlone(tasks[i], readers[i]);
  // One step each for most newcomers, then 100 tokens for all together.
  EXPECT_LE(engine->stats().steps, 8 + 100);
}

TEST(EngineCrowd, NoMoreRunTogetherThanAStepHasRowsAndSamplesFor) {
  EXPECT_EQ(
      MakeEngine({.max_tokens = 5, .max_seqs = 8})->info().limits.max_seqs, 5);
  EXPECT_EQ(
      MakeEngine({.max_seqs = 8, .max_samples = 3})->info().limits.max_seqs, 3);
}

void CancelAThousand(std::shared_ptr<std::atomic<int32_t>> ahead) {
  auto engine = MakeEngine(
      {.num_pages = 24, .max_context = 256, .ahead = std::move(ahead)},
      {.max_num_seqs = 8, .max_queue_size = 100});
  std::atomic<int> cancelled{0};
  std::vector<std::thread> clients;
  for (uint32_t client = 0; client < 4; ++client) {
    clients.emplace_back([&, client] {
      std::mt19937 random(client);
      for (int i = 0; i < 250; ++i) {
        std::stop_source stop;
        GenerateTask task =
            MakeTask(std::vector<int32_t>(Uniform(random, 1, 150), i), 100);
        task.stop = stop.get_token();
        if (i % 10 == 0) stop.request_stop();
        Reader reader(MustSubmit(*engine, std::move(task)));
        reader.AwaitTokens(Uniform(random, 0, 12));
        stop.request_stop();
        // A fast engine may have come to the end of it.
        cancelled += reader.EndCode() == StatusCode::kCancelled;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_GE(cancelled, 100);  // those that came with their stop request
  ExpectAllPagesBack(*engine);
}

TEST(EngineCrowd, AThousandRandomCancelsLoseNoPage) {
  CancelAThousand(nullptr);
}

TEST(EngineCrowd, AThousandRandomCancelsLoseNoPageWithTwoStepsInFlight) {
  const auto ahead = std::make_shared<std::atomic<int32_t>>(0);
  CancelAThousand(ahead);
  EXPECT_GT(*ahead, 0);
}

}  // namespace
}  // namespace millrace::scheduler
