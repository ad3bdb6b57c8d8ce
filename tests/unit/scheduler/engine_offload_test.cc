// Pages kept outside the pool: found again by a later engine, after eviction,
// after a preemption. The fake runner notices each page that holds something
// else than it should.
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <stop_token>
#include <vector>

#include "scheduler/engine.h"
#include "tests/unit/scheduler/engine_fixture.h"
#include "tests/unit/scheduler/fake_store.h"

namespace millrace::scheduler {
namespace {

constexpr int64_t kFakePageBytes = models::kPageTokens * sizeof(int32_t);

std::unique_ptr<Engine> EngineWith(const std::shared_ptr<FakeShelf>& shelf,
                                   FakeOptions fake = {},
                                   int32_t max_fetch = 8) {
  EngineOptions options;
  options.model = "fake";
  return Engine::Create(
      std::make_unique<FakeRunner>(std::move(fake)), options, nullptr, nullptr,
      std::make_unique<FakeStore>(shelf, kFakePageBytes, max_fetch));
}

std::vector<int32_t> PromptOf(int32_t num_tokens, int32_t seed = 0) {
  std::vector<int32_t> prompt(num_tokens);
  std::iota(prompt.begin(), prompt.end(), seed);
  for (int32_t& id : prompt) id %= kFakeVocab;
  return prompt;
}

// The tokens found computed; the answer is held against the model's.
int64_t Ask(Engine& engine, const std::vector<int32_t>& prompt,
            int32_t max_tokens = 5) {
  Reader reader(MustSubmit(engine, MakeTask(prompt, max_tokens)));
  EXPECT_TRUE(reader.AwaitEnd());
  EXPECT_EQ(reader.ids(), FakeAnswer(prompt, max_tokens, {}));
  return reader.end->cached_tokens;
}

TEST(EngineOffload, ALaterEngineFindsWhatTheFirstHasComputed) {
  const auto shelf = std::make_shared<FakeShelf>();
  const std::vector<int32_t> prompt = PromptOf(200);
  {
    auto engine = EngineWith(shelf);
    EXPECT_EQ(Ask(*engine, prompt), 0);
    shelf->AwaitPages(3);  // without another request
  }
  auto engine = EngineWith(shelf);
  EXPECT_EQ(Ask(*engine, prompt), 192);
  EXPECT_EQ(Ask(*engine, PromptOf(200, 1)), 0);
  ExpectAllPagesBack(*engine);
}

TEST(EngineOffload, ACompletionsPagesAreKeptToo) {
  const auto shelf = std::make_shared<FakeShelf>();
  const std::vector<int32_t> prompt = PromptOf(100);
  std::vector<int32_t> turn = prompt;
  const auto answer = FakeAnswer(prompt, 60, {});
  turn.insert(turn.end(), answer.begin(), answer.end());
  {
    auto engine = EngineWith(shelf);
    Ask(*engine, prompt, 60);
    shelf->AwaitPages(2);
  }
  auto engine = EngineWith(shelf);
  EXPECT_EQ(Ask(*engine, turn), 128);
}

TEST(EngineOffload, EvictedPagesComeBack) {
  const auto shelf = std::make_shared<FakeShelf>();
  auto engine = EngineWith(shelf, {.num_pages = 6, .max_context = 384});
  const std::vector<int32_t> prompt = PromptOf(260);
  EXPECT_EQ(Ask(*engine, prompt), 0);
  shelf->AwaitPages(4);
  EXPECT_EQ(Ask(*engine, PromptOf(370, 500)), 0);  // takes all six pages
  shelf->AwaitPages(9);
  EXPECT_EQ(Ask(*engine, prompt), 256);
  ExpectAllPagesBack(*engine);
}

TEST(EngineOffload, LongPromptsComeInPieces) {
  const auto shelf = std::make_shared<FakeShelf>();
  const std::vector<int32_t> prompt = PromptOf(900);
  {
    auto engine = EngineWith(shelf);
    Ask(*engine, prompt);
  }  // what is computed is kept before it ends
  EXPECT_EQ(shelf->size(), 14u);
  auto engine = EngineWith(shelf, {}, /*max_fetch=*/3);
  EXPECT_EQ(Ask(*engine, prompt), 896);
  MutexLock lock(shelf->mu);
  EXPECT_EQ(shelf->num_fetches, 5);
}

TEST(EngineOffload, WhatIsGoneIsComputed) {
  const auto shelf = std::make_shared<FakeShelf>();
  const std::vector<int32_t> prompt = PromptOf(400);
  {
    auto engine = EngineWith(shelf);
    Ask(*engine, prompt);
  }
  {
    MutexLock lock(shelf->mu);
    shelf->lose_every = 3;
  }
  auto engine = EngineWith(shelf);
  EXPECT_EQ(Ask(*engine, prompt), 128);
}

// Both wait for the pages that one of them asked for; they differ behind the
// first page.
TEST(EngineOffload, NobodyIsGivenAnotherPromptsPages) {
  const auto shelf = std::make_shared<FakeShelf>();
  const std::vector<int32_t> one = PromptOf(300);
  std::vector<int32_t> other = one;
  for (size_t i = 64; i < other.size(); ++i) other[i] = 7;
  {
    auto engine = EngineWith(shelf);
    Ask(*engine, one);
    Ask(*engine, other);
  }
  {
    MutexLock lock(shelf->mu);
    shelf->closed = true;
  }
  auto engine = EngineWith(shelf);
  std::stop_source stop;
  GenerateTask first = MakeTask(one, 5);
  first.stop = stop.get_token();
  Reader cancelled(MustSubmit(*engine, std::move(first)));
  shelf->AwaitFetches(1);
  Reader second(MustSubmit(*engine, MakeTask(other, 5)));
  // A third runs meanwhile.
  EXPECT_EQ(Ask(*engine, PromptOf(50, 300)), 0);
  stop.request_stop();
  EXPECT_EQ(Ask(*engine, PromptOf(50, 400)), 0);
  shelf->Open();
  ASSERT_TRUE(second.AwaitEnd());
  EXPECT_EQ(cancelled.EndCode(), StatusCode::kCancelled);
  EXPECT_EQ(second.ids(), FakeAnswer(other, 5, {}));
  EXPECT_GE(second.end->cached_tokens, 64);
  EXPECT_EQ(Ask(*engine, one), 256);
  ExpectAllPagesBack(*engine);
}

TEST(EngineOffload, APreemptionIsASwap) {
  const auto shelf = std::make_shared<FakeShelf>();
  // Two of four pages each, in a pool of seven: one is preempted.
  auto engine = EngineWith(shelf, {.num_pages = 7, .max_context = 448});
  std::vector<std::unique_ptr<Reader>> readers;
  for (int32_t i = 0; i < 3; ++i) {
    readers.push_back(std::make_unique<Reader>(
        MustSubmit(*engine, MakeTask(PromptOf(120, 100 * i), 200))));
  }
  for (int32_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(readers[i]->AwaitEnd());
    EXPECT_EQ(readers[i]->ids(), FakeAnswer(PromptOf(120, 100 * i), 200, {}));
  }
  EXPECT_GT(engine->stats().preemptions, 0);
  MutexLock lock(shelf->mu);
  EXPECT_GT(shelf->num_fetches, 0);
}

TEST(EngineOffload, RolesAreToldApart) {
  const auto shelf = std::make_shared<FakeShelf>();
  const std::vector<int32_t> prompt = PromptOf(100);
  std::vector<int32_t> turn = prompt;
  const auto answer = FakeAnswer(prompt, 60, {});
  turn.insert(turn.end(), answer.begin(), answer.end());
  {
    auto engine = EngineWith(shelf, {.kv_depends_on_role = true});
    Ask(*engine, prompt, 60);
  }
  auto engine = EngineWith(shelf, {.kv_depends_on_role = true});
  EXPECT_EQ(Ask(*engine, turn), 64);  // the second page was generated in part
}

}  // namespace
}  // namespace millrace::scheduler
