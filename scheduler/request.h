// What the scheduler knows of a request: integers, limits and when to stop.
#pragma once

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "config/base/clock.h"
#include "config/base/trace.h"
#include "models/llm/step.h"

namespace millrace::scheduler {

struct GenerateTask {
  std::vector<int32_t> prompt;      // at least one token
  models::SamplingParams sampling;  // its stop_ids end the answer
  int32_t max_tokens = 0;           // of the answer, at least 1
  bool prompt_logprobs = false;     // score prompt tokens 1…n-1
  Clock::Time deadline = kNever;
  int32_t priority = 0;  // lower runs first, as in vLLM
  // The same for tasks with the same prompt that want it computed once (n > 1);
  // null: it is alone. Shared so that its address means one request only.
  std::shared_ptr<const void> family;
  std::stop_token stop;          // the client is gone
  std::shared_ptr<Trace> trace;  // may be null
};

}  // namespace millrace::scheduler
