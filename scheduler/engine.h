// The engine runs one language model: continuous batching over a paged KV
// cache. One thread owns all sequences, pages and the runner (it is worker 0 of
// the compute team); all others use this interface.
//
//   ASSIGN_OR_RETURN(Reservation place, engine.Reserve());     // or 429
//   ... render, tokenise ...
//   ASSIGN_OR_RETURN(auto stream, engine.Submit(std::move(place), task));
//   stream->OnReady([...] { pool.Post(...); });
//
// Admission comes before the work of tokenising: Reserve answers at once when
// the queue is full. Results do not depend on batch-mates.
//
// Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "config/base/clock.h"
#include "config/base/metrics.h"
#include "config/base/status.h"
#include "config/base/timeline.h"
#include "config/schema.h"
#include "config/topology.h"
#include "models/llm/page_store.h"
#include "models/llm/runner.h"
#include "scheduler/counted_time.h"
#include "scheduler/request.h"
#include "scheduler/reservation.h"
#include "scheduler/token_stream.h"

namespace millrace::scheduler {

// Speculation: draft tokens come from a draft model if there is one, else from
// what stands in the prompt and the completion already. Completions do not
// change; the engine drafts only where that is faster.
struct SpeculativeOptions {
  int32_t num_tokens = 0;  // draft tokens a sequence and step, at most; 0: none
  bool always = false;     // faster or not: to measure it
  // Shortest and longest run of last tokens that is looked up earlier in the
  // text.
  int32_t prompt_lookup_min = config::LlmSettings::kPromptLookupMin;
  int32_t prompt_lookup_max = config::LlmSettings::kPromptLookupMax;
};

struct EngineOptions {
  std::string model = "";     // label of metrics and log lines
  std::string version = "1";  // label of metrics
  // Running together; tokens in one step; waiting beyond those that run.
  int32_t max_num_seqs = config::LlmSettings::kMaxNumSeqs;
  int32_t max_num_batched_tokens = config::LlmSettings::kMaxNumBatchedTokens;
  int32_t max_queue_size = config::CommonSettings::kMaxQueueSize;
  // Keeps the pages of ended prompts and completions for those that begin
  // alike.
  bool enable_prefix_caching = true;
  // A completion's pages are lent to prompts that hold it, although the runner
  // computes prompts in another way: a faster next turn of a conversation,
  // whose bits depend on what is cached.
  bool prefix_cache_share_generated = false;
  // Time between two tokens of a completion that prompts of others should not
  // stretch; 0: prompts take the whole step.
  std::chrono::milliseconds target_itl{0};
  SpeculativeOptions speculative = {};
  bool has_adapters = false;  // LoRA adapters are there from the start
  const Clock* clock = &Clock::Real();
  Timeline* timeline = nullptr;  // gets the steps while a capture runs
};

// LoRA adapters by name, sorted, by commas.
struct AdapterStats {
  bool known = false;   // there are, or were, any
  std::string running;  // of sequences that run
  std::string waiting;  // of those that wait
};

// Completions that have ended, since the engine began. A completion that its
// own stop string ended is a success; a cancelled one is none.
struct CompletionCounts {
  CountedTime success;      // from Submit to the end
  CountedTime fail;         // the same
  CountedTime queue;        // of successes, from Submit to the first step
  CountedTime compute;      // of successes, from there on
  int64_t last_end_ms = 0;  // of a success, Unix time; 0: none yet
  int32_t longest = 0;      // tokens of the longest, with its prompt
};

// A moment's view, for /metrics, health and tests.
struct EngineStats {
  int32_t running = 0;
  int32_t waiting = 0;
  int32_t pages_total = 0;
  int32_t pages_free = 0;
  int32_t pages_used = 0;
  int32_t pages_cached = 0;
  int32_t draft_pages_used = 0;  // of the draft model's own
  int64_t steps = 0;
  int64_t preemptions = 0;
  // Shares of the machine's measured roofline, see utilization.h.
  double bandwidth_utilization = 0;
  double compute_utilization = 0;
  AdapterStats adapters;
  CompletionCounts completions;
};

class Engine {
 public:
  // Starts the engine thread. `registry` may be null, and `draft` if there is
  // no draft model; that one has the same vocabulary and at least as many
  // slots, and computes on the same team. `store` keeps pages outside the pool,
  // for a runner whose pages can be read; null: none are kept.
  static std::unique_ptr<Engine> Create(
      std::unique_ptr<models::Runner> runner, const EngineOptions& options,
      MetricRegistry* registry, std::unique_ptr<models::Runner> draft = nullptr,
      std::unique_ptr<models::PageStore> store = nullptr);
  virtual ~Engine() = default;  // cancels what still runs, joins the thread

  // Places for so many tasks, all or none, or RESOURCE_EXHAUSTED with
  // retry_after_ms from the live service rate (queue full), UNAVAILABLE
  // (draining), DEADLINE_EXCEEDED (cannot be met at the present rate). A
  // tenant that is not alone never gets the last eighth; INVALID_ARGUMENT at n.
  virtual StatusOr<Reservation> Reserve(Clock::Time deadline = kNever,
                                        int32_t places = 1,
                                        const TenantShare& tenant = {}) = 0;

  // INVALID_ARGUMENT as CheckTask finds it. The stream ends
  // with exactly one StreamEnd, whatever happens; the place is held until
  // then. A stop request or a passed deadline is seen at the next step edge.
  virtual StatusOr<std::shared_ptr<TokenStream>> Submit(Reservation place,
                                                        GenerateTask task) = 0;

  // No new places; running work goes on until done or the deadline, then is
  // ended with UNAVAILABLE. True if all of it ended by itself.
  virtual bool Drain(std::chrono::steady_clock::time_point deadline) = 0;

  virtual EngineStats stats() const = 0;
  // The runner's, narrowed: max_context is what Submit accepts (never more than
  // the KV pool can hold), limits.max_seqs what runs together.
  virtual const models::RunnerInfo& info() const = 0;
};

}  // namespace millrace::scheduler
