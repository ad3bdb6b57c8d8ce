// A request inside the engine: its sequence and everything around it that is
// not deterministic: clock, client, place.
//
// Made by Submit, then engine thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>

#include "config/base/clock.h"
#include "config/base/trace.h"
#include "models/llm/step.h"
#include "scheduler/engine.h"
#include "scheduler/sequence.h"
#include "scheduler/speculation.h"
#include "scheduler/token_stream.h"

namespace millrace::scheduler {

struct Job {
  Sequence sequence;
  DraftRecord drafts;
  std::shared_ptr<ForkGroup>
      fork_group;  // that of sequence.fork_group; or null
  models::SamplingParams sampling;
  std::shared_ptr<const models::LoraAdapter> adapter;          // or null
  std::shared_ptr<const models::PromptEmbeddings> embeddings;  // or null
  TenantShare tenant;
  Clock::Time deadline = kNever;
  std::stop_token stop;
  std::shared_ptr<Trace> trace;         // may be null
  std::shared_ptr<TokenStream> stream;  // the handler holds the other end
  Reservation place;
  int32_t num_completions = 1;  // of its request; 0: counted with another job

  Clock::Time accepted;     // first byte of the request, if it was stamped
  Clock::Time submitted;    // tokens with the engine
  Clock::Time first_token;  // if there is an output token
  Clock::Time last_token;
  int32_t fair_prompt = 0;  // prompt tokens that the fair order counts
  std::optional<PromptProgress> progress;  // told last; none: not asked for
  bool scheduled = false;                  // a step has run some of it
  Clock::Time began;                       // of that step, when scheduled

  // Output tokens; absent: no step has run.
  std::optional<int32_t> num_output() const {
    if (!scheduled) return std::nullopt;
    return sequence.num_output();
  }
  // The prompt's first `num_computed` tokens are computed: told when its first
  // step begins and behind each step; nothing is told twice.
  void TellProgress(int32_t num_computed, Clock::Time now);
};

}  // namespace millrace::scheduler
