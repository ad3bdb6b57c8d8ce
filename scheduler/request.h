// What the scheduler knows of a request: integers, limits and when to stop.
// The checks of a request's token ids and of its length stand here; handlers
// ask them early, with the client's field names, and the engine asks them
// again for every task.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/clock.h"
#include "config/base/status.h"
#include "config/base/trace.h"
#include "models/llm/runner.h"
#include "models/llm/step.h"

namespace millrace::scheduler {

// Whose request it is, for a fair order between tenants.
struct TenantShare {
  uint32_t id = 0;
  int32_t weight = 1;  // its share beside other tenants, at least 1
  // There is no other tenant: it may take all places of the queue.
  bool alone = true;
};

// How far the computing of a prompt is.
struct PromptProgress {
  int32_t total = 0;      // tokens of the prompt
  int32_t cached = 0;     // of those, found in the prefix cache
  int32_t processed = 0;  // of those, found or computed
  double seconds = 0;     // since its first step began
};

// What the completions of one request have in common (n > 1): the prompt, and
// what is counted once. Made for a request; then engine thread only.
struct ForkGroup {
  // Completions that have not ended. Those that were refused are among them.
  int32_t num_left = 0;
  int32_t longest_output = 0;  // of those that have, in tokens
  // Counts the request; set when one has ended. Last of all, and once: when
  // none is left, or with the group where some were refused.
  std::function<void(int32_t longest_output)> count = {};

  ~ForkGroup() {
    if (num_left > 0 && count) count(longest_output);
  }
};

struct GenerateTask {
  std::vector<int32_t> prompt;      // at least one token
  models::SamplingParams sampling;  // its stop_ids end the completion
  // Made for the engine's model; null: the model as it is.
  std::shared_ptr<const models::LoraAdapter> adapter = {};
  // Stand in place of the embeddings of some prompt tokens; null: none do. Of
  // images, which the engine's model and device take.
  std::shared_ptr<const models::PromptEmbeddings> embeddings = {};
  // What the completion is expected to say: draft tokens (prediction.h).
  std::vector<int32_t> prediction = {};
  int32_t max_tokens = 0;        // of the completion, at least 1
  bool prompt_logprobs = false;  // score prompt tokens 1…n-1
  bool prompt_progress = false;  // tell of each step of the prompt
  Clock::Time deadline = kNever;
  int32_t priority = 0;  // lower runs first, as in vLLM
  // Completions that its request asks for; 0: counted with an earlier task.
  int32_t num_completions = 1;
  TenantShare tenant = {};
  // The same for tasks with the same prompt that want it computed once (n > 1);
  // null: it is alone. Shared so that its address means one request only.
  std::shared_ptr<ForkGroup> fork_group;
  std::stop_token stop;          // the client is gone
  std::shared_ptr<Trace> trace;  // may be null
};

// INVALID_ARGUMENT at `field`, a list of token ids in the request, unless
// 0 <= id < num_ids for all.
Status CheckTokenIds(std::span<const int32_t> ids, int32_t num_ids,
                     const char* field, std::string_view model);

// A prompt beside the context of a model.
struct PromptSize {
  int64_t num_tokens = 0;
  bool at_least = false;         // it has more, but they were not counted
  const char* field = "prompt";  // of the request, for messages
};
// INVALID_ARGUMENT at the prompt's field or at max_tokens when they do not fit
// in `max_context` together. A max_tokens of 1 asks whether the prompt fits.
Status CheckContext(const PromptSize& prompt, int64_t max_tokens,
                    int64_t max_context, std::string_view model);

// Whether a runner can run the task: INVALID_ARGUMENT for an empty prompt, a
// token id outside the vocabulary, or too little context.
Status CheckTask(const GenerateTask& task, const models::RunnerInfo& info,
                 std::string_view model);

}  // namespace millrace::scheduler
