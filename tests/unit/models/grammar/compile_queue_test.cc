// The queue over a compiler that the test plays.
#include "models/grammar/compile_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <stop_token>
#include <string>
#include <utility>

namespace millrace::models {
namespace {

class FakeGrammar final : public TokenGrammar {
 public:
  explicit FakeGrammar(int64_t bytes) : bytes_(bytes) {}
  std::unique_ptr<GrammarMatcher> NewMatcher() const override {
    return nullptr;
  }
  int64_t memory_bytes() const override { return bytes_; }

 private:
  const int64_t bytes_;
};

OutputConstraint Regex(std::string text, std::string field = "regex") {
  return {.kind = ConstraintKind::kRegex,
          .text = std::move(text),
          .field = std::move(field)};
}

std::future<CompiledGrammar> Ask(GrammarCompiler& compiler,
                                 const OutputConstraint& constraint,
                                 CompileWait wait = {}) {
  auto promise = std::make_shared<std::promise<CompiledGrammar>>();
  auto result = promise->get_future();
  compiler.Compile(constraint, std::move(wait),
                   [promise](CompiledGrammar grammar) {
                     promise->set_value(std::move(grammar));
                   });
  return result;
}

CompiledGrammar Small() { return std::make_shared<const FakeGrammar>(100); }

TEST(CompileQueue, CompilesEqualConstraintsOnce) {
  std::atomic<int> calls = 0;
  CompileQueue queue([&](const OutputConstraint&) {
    ++calls;
    return Small();
  });
  const auto first = Ask(queue, Regex("a")).get();
  const auto again = Ask(queue, Regex("a")).get();
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(*first, *again);
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(Ask(queue, Regex("b")).get().ok());
  EXPECT_EQ(calls, 2);
}

TEST(CompileQueue, ThoseThatWaitTogetherShareOneResult) {
  std::promise<void> go;
  std::atomic<int> calls = 0;
  CompileQueue queue(
      [&, gate = go.get_future().share()](const OutputConstraint&) {
        gate.wait();
        ++calls;
        return Small();
      });
  auto first = Ask(queue, Regex("a"));
  auto second = Ask(queue, Regex("a"));
  go.set_value();
  EXPECT_EQ(*first.get(), *second.get());
  EXPECT_EQ(calls, 1);
}

TEST(CompileQueue, ARefusalIsRememberedAtEachField) {
  std::atomic<int> calls = 0;
  CompileQueue queue([&](const OutputConstraint&) -> CompiledGrammar {
    ++calls;
    return InvalidArgument("bad");
  });
  EXPECT_EQ(Ask(queue, Regex("a", "x")).get().status().field(), "x");
  EXPECT_EQ(Ask(queue, Regex("a", "y")).get().status().field(), "y");
  EXPECT_EQ(calls, 1);
}

TEST(CompileQueue, AnotherFailureIsTriedAgain) {
  std::atomic<int> calls = 0;
  CompileQueue queue([&](const OutputConstraint&) -> CompiledGrammar {
    if (++calls == 1) return Internal("no memory");
    return Small();
  });
  EXPECT_FALSE(Ask(queue, Regex("a")).get().ok());
  EXPECT_TRUE(Ask(queue, Regex("a")).get().ok());
}

TEST(CompileQueue, ForgetsTheOldestUseWhenFull) {
  std::atomic<int> calls = 0;
  CompileQueue queue(
      [&](const OutputConstraint&) {
        ++calls;
        return Small();
      },
      {.cache_bytes = 250});
  EXPECT_TRUE(Ask(queue, Regex("a")).get().ok());
  EXPECT_TRUE(Ask(queue, Regex("b")).get().ok());
  EXPECT_TRUE(Ask(queue, Regex("a")).get().ok());
  EXPECT_EQ(calls, 2);
  EXPECT_TRUE(Ask(queue, Regex("c")).get().ok());  // b goes
  EXPECT_TRUE(Ask(queue, Regex("a")).get().ok());
  EXPECT_EQ(calls, 3);
  EXPECT_TRUE(Ask(queue, Regex("b")).get().ok());
  EXPECT_EQ(calls, 4);
}

TEST(CompileQueue, RefusesWhatExceedsItsBoundAndEndsTheRest) {
  std::promise<void> go;
  std::promise<void> begun;
  std::future<CompiledGrammar> running, waiting;
  {
    CompileQueue queue(
        [&, gate = go.get_future().share()](const OutputConstraint& c) {
          if (c.text == "a") begun.set_value();
          gate.wait();
          return Small();
        },
        {.max_waiting = 2});
    running = Ask(queue, Regex("a"));
    begun.get_future().wait();
    waiting = Ask(queue, Regex("b"));
    const Status full = Ask(queue, Regex("c")).get().status();
    EXPECT_EQ(full.code(), StatusCode::kResourceExhausted);
    EXPECT_GT(full.retry_after_ms(), 0);
    std::thread([&] { go.set_value(); }).join();
  }
  EXPECT_TRUE(running.get().ok());
  // Either it was compiled before the end, or it was told of it.
  const CompiledGrammar last = waiting.get();
  EXPECT_TRUE(last.ok() || last.status().code() == StatusCode::kUnavailable);
}

// While the compiler is busy with "busy" until the test opens the gate.
struct BusyQueue {
  BusyQueue() {
    running = Ask(queue, Regex("busy"));
    begun.get_future().wait();
  }
  ~BusyQueue() { Open(); }
  void Open() {
    if (!std::exchange(open, true)) go.set_value();
  }

  std::promise<void> go, begun;
  bool open = false;
  std::shared_future<void> gate = go.get_future().share();
  std::atomic<int> calls = 0;
  std::future<CompiledGrammar> running;
  CompileQueue queue{[this](const OutputConstraint& c) {
    ++calls;
    if (c.text == "busy") {
      begun.set_value();
      gate.wait();
    }
    return Small();
  }};
};

TEST(CompileQueue, ADeadlineEndsTheWait) {
  BusyQueue busy;
  auto patient = Ask(busy.queue, Regex("a"));
  auto hasty =
      Ask(busy.queue, Regex("a"),
          {.deadline = Clock::Real().Now() + std::chrono::milliseconds(5)});
  EXPECT_EQ(hasty.get().status().code(), StatusCode::kDeadlineExceeded);
  auto same = Ask(busy.queue, Regex("busy"), {.deadline = Clock::Real().Now()});
  EXPECT_EQ(same.get().status().code(), StatusCode::kDeadlineExceeded);
  busy.Open();
  EXPECT_TRUE(patient.get().ok());
  EXPECT_TRUE(busy.running.get().ok());
}

TEST(CompileQueue, WhatNobodyWaitsForIsNotCompiled) {
  BusyQueue busy;
  std::stop_source client;
  auto gone = Ask(busy.queue, Regex("a"), {.stop = client.get_token()});
  client.request_stop();
  EXPECT_EQ(gone.get().status().code(), StatusCode::kCancelled);
  auto never = Ask(busy.queue, Regex("b"), {.stop = client.get_token()});
  EXPECT_EQ(never.get().status().code(), StatusCode::kCancelled);
  busy.Open();
  EXPECT_TRUE(Ask(busy.queue, Regex("c")).get().ok());
  EXPECT_EQ(busy.calls, 2);
}

}  // namespace
}  // namespace millrace::models
