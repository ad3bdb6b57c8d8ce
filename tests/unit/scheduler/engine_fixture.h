// What the engine's tests share: an engine over the fake runner, and a reader
// that waits for a stream's end.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "config/base/mutex.h"
#include "scheduler/engine.h"
#include "tests/unit/scheduler/fake_runner.h"

namespace millrace::scheduler {

// Long enough never to be met by a machine that is merely busy.
inline std::chrono::steady_clock::time_point Soon() {
  return std::chrono::steady_clock::now() + std::chrono::seconds(120);
}

// Collects a stream. Await… return false when nothing came for two minutes.
class Reader {
 public:
  explicit Reader(std::shared_ptr<TokenStream> stream)
      : stream_(std::move(stream)), shared_(std::make_shared<Shared>()) {
    stream_->OnReady([shared = shared_] {
      MutexLock lock(shared->mu);
      shared->ready = true;
      shared->changed.NotifyAll();
    });
  }

  bool AwaitTokens(size_t n) {
    while (tokens.size() < n && !end) {
      if (!TakeMore()) return false;
    }
    return tokens.size() >= n;
  }
  bool AwaitEnd() {
    while (!end) {
      if (!TakeMore()) return false;
    }
    return true;
  }
  std::vector<int32_t> ids() const {
    std::vector<int32_t> ids;
    for (const TokenEvent& event : tokens) ids.push_back(event.id);
    return ids;
  }
  StatusCode EndCode() {
    EXPECT_TRUE(AwaitEnd());
    return end ? end->status.code() : StatusCode::kUnknown;
  }

  std::vector<TokenEvent> prompt;
  std::vector<PromptProgress> progress;
  std::vector<TokenEvent> tokens;
  std::optional<StreamEnd> end;

 private:
  struct Shared {
    Mutex mu;
    CondVar changed;
    bool ready = false;
  };

  bool TakeMore() {
    {
      MutexLock lock(shared_->mu);
      while (!shared_->ready) {
        if (!shared_->changed.WaitUntil(shared_->mu, Soon())) return false;
      }
      shared_->ready = false;
    }
    TokenStream::Taken taken = stream_->Take();
    EXPECT_FALSE(end.has_value()) << "something came after the end";
    std::move(taken.prompt.begin(), taken.prompt.end(),
              std::back_inserter(prompt));
    EXPECT_TRUE(taken.progress.empty() || tokens.empty())
        << "a prompt's progress came after a token";
    std::move(taken.progress.begin(), taken.progress.end(),
              std::back_inserter(progress));
    std::move(taken.tokens.begin(), taken.tokens.end(),
              std::back_inserter(tokens));
    if (taken.end) end = std::move(taken.end);
    return true;
  }

  std::shared_ptr<TokenStream> stream_;
  std::shared_ptr<Shared> shared_;  // a wake may outlive the reader
};

inline std::unique_ptr<Engine> MakeEngine(FakeOptions fake,
                                          EngineOptions options = {},
                                          MetricRegistry* registry = nullptr) {
  options.model = "fake";
  return Engine::Create(std::make_unique<FakeRunner>(std::move(fake)), options,
                        registry);
}

inline GenerateTask MakeTask(std::vector<int32_t> prompt, int32_t max_tokens) {
  GenerateTask task;
  task.prompt = std::move(prompt);
  task.max_tokens = max_tokens;
  return task;
}

// Reserves and submits; both must succeed.
inline std::shared_ptr<TokenStream> MustSubmit(Engine& engine,
                                               GenerateTask task) {
  StatusOr<Reservation> place = engine.Reserve();
  CHECK(place.ok(), "a test's request finds a place");
  auto stream = engine.Submit(std::move(*place), std::move(task));
  CHECK(stream.ok(), "a test's request is accepted");
  return *stream;
}

inline void ExpectAllPagesBack(const Engine& engine) {
  const EngineStats stats = engine.stats();
  EXPECT_EQ(stats.pages_used, 0);
  EXPECT_EQ(stats.pages_free + stats.pages_cached, stats.pages_total);
  EXPECT_EQ(stats.running, 0);
  EXPECT_EQ(stats.waiting, 0);
}

}  // namespace millrace::scheduler
