// Tokens on their way from the engine to one request's handler. Bounded by the
// request's max_tokens, which admission has counted: a slow reader gets larger
// chunks, never a stalled batch. Exactly one End always arrives.
//
// Push and Finish: engine thread. The rest: any one consumer at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "config/base/mutex.h"
#include "config/base/status.h"
#include "models/llm/step.h"
#include "scheduler/request.h"

namespace millrace::scheduler {

struct TokenEvent {
  int32_t id = 0;
  float logprob = 0;                           // when asked for
  std::vector<models::TokenLogprob> top = {};  // when asked for
};

enum class FinishReason {
  kStop,    // a stop id was sampled (it is the last event)
  kLength,  // max_tokens or the context is full
  kError,   // see the status
};

// Draft tokens that the client predicted and a step has checked; see
// prediction.h.
struct PredictionCounts {
  int32_t accepted = 0;  // part of the completion
  int32_t rejected = 0;
};

struct StreamEnd {
  Status status = {};  // OK for kStop and kLength
  FinishReason reason = FinishReason::kError;
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;  // of the prompt, found in the prefix cache
  int32_t output_tokens = 0;
  PredictionCounts prediction = {};
};

class TokenStream {
 public:
  struct Taken {
    // Log-probabilities of prompt tokens 1…n-1 come first, when asked for.
    std::vector<TokenEvent> prompt;
    // When asked for: one when the prompt's first step begins and one behind
    // each of its steps, the last of them before the first token.
    std::vector<PromptProgress> progress;
    std::vector<TokenEvent> tokens;  // everything since the last Take
    std::optional<StreamEnd> end;    // set once, with or after the last token
  };
  Taken Take();

  // Called after each Push or Finish that follows an empty stream, from the
  // engine thread, so it must be short (post a task). Called at once if there
  // is something already.
  void OnReady(std::function<void()> wake);

  // The reader found a stop string and cancels: for the engine that is a stop.
  // Relaxed: the stop request that follows orders it.
  void MarkStopped() { stopped_.store(true, std::memory_order_relaxed); }
  bool stopped() const { return stopped_.load(std::memory_order_relaxed); }

  void PushPrompt(TokenEvent event);
  void PushProgress(const PromptProgress& progress);
  void Push(TokenEvent event);
  void Finish(StreamEnd end);

 private:
  // What to call once the lock is released; empty if the reader knows already.
  std::function<void()> WakeOnce() REQUIRES(mu_);

  std::atomic<bool> stopped_ = false;
  Mutex mu_;
  Taken pending_ GUARDED_BY(mu_);
  bool woken_ GUARDED_BY(mu_) = false;
  bool ended_ GUARDED_BY(mu_) = false;
  std::function<void()> wake_ GUARDED_BY(mu_);
};

}  // namespace millrace::scheduler
