// What a step drew goes to its sequences: tokens into streams, pages that
// became full to the prefix cache, and sequences that are complete to their
// end.
#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "scheduler/engine_loop.h"

namespace millrace::scheduler {
namespace {

using models::kMaxTopLogprobs;
using models::kSample;
using models::StepResult;

double Seconds(Clock::Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

TokenEvent EventOf(const StepResult& result, int32_t sample,
                   int32_t top_logprobs) {
  TokenEvent event;
  event.id = result.ids[sample];
  const auto i = static_cast<size_t>(sample);
  if (i < result.logprobs.size()) event.logprob = result.logprobs[i];
  const size_t first = i * kMaxTopLogprobs;
  for (size_t k = 0;
       k < static_cast<size_t>(top_logprobs) && k < kMaxTopLogprobs &&
       first + k < result.top.size() && result.top[first + k].id >= 0;
       ++k) {
    event.top.push_back(result.top[first + k]);
  }
  return event;
}

}  // namespace

void EngineLoop::Apply(const StepInFlight& step, const StepResult& result) {
  const models::StepBatch& batch = step.batch;
  CHECK(static_cast<int32_t>(result.ids.size()) >= batch.num_samples,
        "a step gives an id for every row that leaves through the head");
  const Clock::Time now = clock_.Now();
  int32_t sample = 0;
  for (size_t seq = 0; seq < step.rows.size(); ++seq) {
    // Rows were built in the order of the plan.
    const int32_t first = sample;
    while (sample < batch.num_samples &&
           batch.sample_seqs()[sample] == static_cast<int32_t>(seq)) {
      ++sample;
    }
    const StepInFlight::Rows& rows = step.rows[seq];
    if (rows.job == nullptr) continue;
    ApplyRows(step, rows, result, first, sample, now);
  }
}

void EngineLoop::ApplyRows(const StepInFlight& step,
                           const StepInFlight::Rows& rows,
                           const StepResult& result, int32_t first_sample,
                           int32_t end_sample, Clock::Time now) {
  const models::StepBatch& batch = step.batch;
  const PlannedRows& planned = rows.planned;
  Job& job = *rows.job;
  Sequence& sequence = job.sequence;
  sequence.rows_in_flight -= planned.num_rows;
  // Else the next step, which has its row already, draws behind it.
  if (sequence.rows_in_flight == 0) sequence.drawn_by = -1;
  const int32_t num_known = sequence.num_tokens();
  int32_t num_computed =
      sequence.num_computed + planned.num_rows - planned.num_draft;
  job.TellProgress(num_computed, now);
  std::optional<FinishReason> ends;
  for (int32_t i = first_sample; i < end_sample && !ends; ++i) {
    const int32_t row = batch.sample_rows()[i];
    const int32_t position = batch.positions()[row];
    TokenEvent event = EventOf(result, i, job.sampling.top_logprobs);
    if (batch.score_ids()[i] != kSample) {
      sequence.num_scored = position + 1;
      job.stream->PushPrompt(std::move(event));
      continue;
    }
    if (position >= num_known) {
      // A draft token: what its row drew counts if it was accepted.
      if (batch.tokens()[row] != sequence.tokens[position]) break;
      ++num_computed;
    }
    if (job.sampling.mirostat.on) {
      sequence.mirostat_mu = result.mirostat_mu[static_cast<size_t>(i)];
    }
    ApplySampled(job, std::move(event), now);
    if (std::ranges::count(job.sampling.stop_ids, sequence.tokens.back()) > 0) {
      ends = FinishReason::kStop;
    } else if (sequence.num_output() >= sequence.max_output) {
      ends = FinishReason::kLength;
    }
  }
  const int32_t num_new = sequence.num_tokens() - num_known;
  metrics_.generation_tokens.Add(num_new);
  metrics_.AddDraft(planned.num_draft, std::max(num_new - 1, 0));
  if (speculation_ && num_new > 0) {
    speculation_->Learn(job.drafts, planned.num_draft,
                        std::span(sequence.tokens).subspan(num_known));
    job.drafts.draft = {};  // the next step may not be asked for one
  }
  // The token drawn last is known and not computed yet.
  ledger_.Advance(sequence, num_computed);
  if (!ends) return;
  const auto owner = std::ranges::find_if(
      jobs_, [&](const auto& other) { return other.get() == &job; });
  End(*owner, OkStatus(), *ends);
}

void EngineLoop::ApplySampled(Job& job, TokenEvent event, Clock::Time now) {
  Sequence& sequence = job.sequence;
  if (sequence.num_output() == 0) {
    if (job.trace) job.trace->Stamp(Stage::kFirstToken, now);
    job.first_token = now;
    metrics_.time_to_first_token.Observe(
        Seconds(now - job.accepted),
        job.trace ? ExemplarId(job.trace->context) : "");
  } else {
    metrics_.inter_token_latency.Observe(Seconds(now - job.last_token));
  }
  job.last_token = now;
  sequence.tokens.push_back(event.id);
  job.stream->Push(std::move(event));
}

}  // namespace millrace::scheduler
