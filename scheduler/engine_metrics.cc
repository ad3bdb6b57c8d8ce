// Names, units and help of the engine's metrics, in one place.
#include "scheduler/engine_metrics.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "models/llm/step.h"

namespace millrace::scheduler {
namespace {

double Seconds(Clock::Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

// 1 to 131072 tokens.
const std::vector<double>& TokenBuckets() {
  static const std::vector<double> bounds = [] {
    std::vector<double> powers;
    for (int i = 0; i <= 17; ++i) powers.push_back(1 << i);
    return powers;
  }();
  return bounds;
}

}  // namespace

EngineMetrics::EngineMetrics(MetricRegistry& registry,
                             const MetricLabels& labels, int32_t num_pages,
                             const std::string& device, int32_t most_drafted)
    : LoadMetrics(registry, labels) {
  preemptions = registry.AddCounter(
      "millrace_preemptions_total",
      "Sequences put back to waiting for want of KV pages; if it grows "
      "steadily, raise kv_cache_memory_bytes or lower max_num_seqs.",
      labels);
  prompt_tokens = registry.AddCounter("millrace_prompt_tokens_total",
                                      "Prompt tokens taken in.", labels);
  computed_prompt_tokens = registry.AddCounter(
      "millrace_computed_prompt_tokens_total",
      "Prompt tokens that were not in the prefix cache.", labels);
  generation_tokens = registry.AddCounter("millrace_generation_tokens_total",
                                          "Tokens generated.", labels);
  prefix_cache_queries = registry.AddCounter(
      "millrace_prefix_cache_queries_total",
      "Prompt tokens looked up in the prefix cache.", labels);
  prefix_cache_hits = registry.AddCounter(
      "millrace_prefix_cache_hits_total",
      "Of those, tokens found computed; a low share with prompts that begin "
      "alike asks for a larger kv_cache_memory_bytes.",
      labels);
  offload_hit_tokens = registry.AddCounter(
      "millrace_kv_offload_hit_tokens_total",
      "Tokens whose keys and values came from kv_cache_dir instead of being "
      "computed.",
      labels);

  drafts = registry.AddCounter("millrace_spec_decode_num_drafts_total",
                               "Drafts that steps have checked.", labels);
  draft_tokens =
      registry.AddCounter("millrace_spec_decode_num_draft_tokens_total",
                          "Draft tokens that steps have checked.", labels);
  accepted_tokens = registry.AddCounter(
      "millrace_spec_decode_num_accepted_tokens_total",
      "Of those, tokens that were accepted and saved a step.", labels);
  for (int32_t i = 0; i < most_drafted; ++i) {
    accepted_at.push_back(registry.AddCounter(
        "millrace_spec_decode_num_accepted_tokens_per_pos_total",
        "The same by the token's place in its draft, from 0 on.",
        With(labels, "position", std::to_string(i))));
  }
  draft_seconds =
      registry.AddCounter("millrace_spec_decode_draft_seconds_total",
                          "Time that a draft model took, its reading of "
                          "prompts included; 0 without one.",
                          labels);
  steps_ahead = registry.AddCounter(
      "millrace_steps_ahead_total",
      "Steps that a GPU was given before the tokens of the step before were "
      "read; 0 on CPUs.",
      labels);
  discarded_rows = registry.AddCounter(
      "millrace_discarded_rows_total",
      "Rows of such steps that were computed for completions that had ended.",
      labels);

  for (size_t i = 0; i < phase_seconds.size(); ++i) {
    phase_seconds[i] = registry.AddCounter(
        "millrace_step_phase_seconds_total",
        "Where steps spend their time, all layers together. On a GPU the time "
        "of every step is measured and split as in the last step of its kind "
        "whose phases were.",
        With(With(labels, "device", device), "phase",
             models::kStepPhaseNames[i]));
  }

  time_to_first_token = registry.AddHistogram(
      "millrace_time_to_first_token_seconds",
      "From a request's arrival to its first sampled token.",
      LatencyBucketsSeconds(), labels);
  inter_token_latency = registry.AddHistogram(
      "millrace_inter_token_latency_seconds",
      "Between two tokens of one completion.", LatencyBucketsSeconds(), labels);

  step_tokens = registry.AddHistogram(
      "millrace_step_tokens",
      "Rows of a step: tokens of prompts, decodes and draft tokens.",
      TokenBuckets(), labels);
  AddRequestMetrics(registry, labels);

  const auto pages = [&](const char* state) {
    return registry.AddGauge("millrace_kv_pages",
                             "Pages of the KV cache by state.",
                             With(labels, "state", state));
  };
  pages_free = pages("free");
  pages_used = pages("used");
  pages_cached = pages("cached");
  kv_usage = registry.AddGauge(
      "millrace_kv_cache_usage_ratio",
      "Share of the KV pages that running sequences hold, 0 to 1.", labels);
  kv_info = registry.AddGauge(
      "millrace_kv_cache_info",
      "Always 1; the labels tell the tokens of a page and the pages of the "
      "pool.",
      With(With(labels, "page_tokens", std::to_string(models::kPageTokens)),
           "num_pages", std::to_string(num_pages)));
  kv_info.Set(1);
  draft_pages_used = registry.AddGauge(
      "millrace_draft_kv_pages_used",
      "KV pages that the draft model holds for running sequences.", labels);
  bandwidth_utilization = registry.AddGauge(
      "millrace_model_bandwidth_utilization",
      "Bytes that the last seconds of steps had to read (weights, keys and "
      "values), as a share of what the team read from memory when measured at "
      "the start. Near 1 while decoding few streams: memory is the limit.",
      labels);
  compute_utilization = registry.AddGauge(
      "millrace_model_flops_utilization",
      "Multiply-adds of the last seconds of steps, as a share of what the "
      "kernels did in cache when measured at the start. Near 1 under prompts "
      "and large batches: the cores are the limit.",
      labels);
  const auto price = [&](const char* of) {
    return registry.AddGauge(
        "millrace_step_price_seconds",
        "What steps cost, learnt from those that ran: a step takes the sum of "
        "one step, its rows, the rows that are sampled and the keys that its "
        "rows attend. For planning; see millrace-loadtest plan fit.",
        With(labels, "of", of));
  };
  step_price = price("step");
  row_price = price("row");
  sample_price = price("sample");
  key_price = price("key");
  peak_read = registry.AddGauge(
      "millrace_peak_read_bytes_per_second",
      "What the compute team reads from memory at best, measured at the start.",
      labels);
  peak_macs = registry.AddGauge(
      "millrace_peak_macs_per_second",
      "Multiply-adds of the compute team at best, measured at the start.",
      labels);
  barrier = registry.AddGauge(
      "millrace_barrier_seconds",
      "One barrier of the compute team, measured at the start; a step has "
      "about five a layer.",
      labels);
}

void EngineMetrics::AddRequestMetrics(MetricRegistry& registry,
                                      const MetricLabels& labels) {
  const auto ended = [&](const char* reason) {
    return registry.AddCounter(
        "millrace_completions_total",
        "Completions by why they ended: at a stop token or string, at "
        "max_tokens, cancelled by the client, or failed.",
        With(labels, "reason", reason));
  };
  ended_stop = ended("stop");
  ended_length = ended("length");
  ended_cancelled = ended("cancelled");
  ended_error = ended("error");
  const auto time = [&](const char* name, const char* help) {
    return registry.AddHistogram(name, help, LatencyBucketsSeconds(), labels);
  };
  completion_time = time("millrace_completion_time_seconds",
                         "From a request's arrival to its completion's end.");
  inference_time = time("millrace_inference_time_seconds",
                        "From a completion's first step to its end.");
  prefill_time = time("millrace_prefill_time_seconds",
                      "From a completion's first step to its first token.");
  decode_time = time("millrace_decode_time_seconds",
                     "From a completion's first token to its end.");
  time_per_token =
      time("millrace_request_time_per_output_token_seconds",
           "Mean time between two tokens of ended completions that have two.");
  const auto tokens = [&](const char* name, const char* help) {
    return registry.AddHistogram(name, help, TokenBuckets(), labels);
  };
  request_prompt_tokens =
      tokens("millrace_request_prompt_tokens", "Tokens of ended prompts.");
  request_computed_prompt =
      tokens("millrace_request_computed_prompt_tokens",
             "Of those, tokens that were not in the prefix cache.");
  request_generation_tokens = tokens("millrace_request_generation_tokens",
                                     "Tokens of ended completions.");
  request_longest = tokens("millrace_request_longest_completion_tokens",
                           "Tokens of the longest completion of a request, "
                           "when all have ended.");
  request_max_tokens =
      tokens("millrace_request_max_tokens", "max_tokens of ended completions.");
  request_n = tokens("millrace_request_n", "Completions that requests ask.");
  longest_sequence = registry.AddGauge(
      "millrace_longest_sequence_tokens",
      "Prompt and completion of the longest sequence that has ended.", labels);
}

void StatsBoard::AddEnding(const Job& job, const StreamEnd& end,
                           Clock::Time now) {
  const bool is_success =
      end.status.ok() ||
      (end.status.code() == StatusCode::kCancelled && job.stream->stopped());
  MutexLock lock(mu_);
  completions_.longest =
      std::max(completions_.longest, end.prompt_tokens + end.output_tokens);
  if (!is_success) return completions_.fail.Add(now - job.submitted);
  const Clock::Time began = job.scheduled ? job.began : now;
  completions_.success.Add(now - job.submitted);
  completions_.queue.Add(began - job.submitted);
  completions_.compute.Add(now - began);
  completions_.last_end_ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(
          std::chrono::system_clock::now().time_since_epoch())
          .count();
}

void EngineMetrics::AddEnding(const Job& job, const StreamEnd& end,
                              Clock::Time now) const {
  const bool done = end.status.ok();
  const bool cancelled = end.status.code() == StatusCode::kCancelled;
  if (done) {
    (end.reason == FinishReason::kLength ? ended_length : ended_stop).Add();
  } else if (cancelled && job.stream->stopped()) {
    ended_stop.Add();
  } else {
    (cancelled ? ended_cancelled : ended_error).Add();
  }
  if (job.num_completions > 0) request_n.Observe(job.num_completions);
  completion_time.Observe(Seconds(now - job.accepted),
                          job.trace ? ExemplarId(job.trace->context) : "");
  if (job.scheduled) inference_time.Observe(Seconds(now - job.began));
  if (end.output_tokens > 0) {
    prefill_time.Observe(Seconds(job.first_token - job.began));
    decode_time.Observe(Seconds(now - job.first_token));
  }
  if (end.output_tokens > 1) {
    time_per_token.Observe(Seconds(job.last_token - job.first_token) /
                           (end.output_tokens - 1));
  }
  if (job.scheduled) {
    request_computed_prompt.Observe(end.prompt_tokens -
                                    std::max(job.sequence.num_found, 0));
  }
  request_prompt_tokens.Observe(end.prompt_tokens);
  request_generation_tokens.Observe(end.output_tokens);
  request_max_tokens.Observe(job.sequence.max_output);
  ForkGroup* const group = job.fork_group.get();
  if (group == nullptr) return request_longest.Observe(end.output_tokens);
  group->longest_output = std::max(group->longest_output, end.output_tokens);
  if (--group->num_left == 0) {
    request_longest.Observe(group->longest_output);
  } else if (!group->count) {
    group->count = [longest = request_longest](int32_t tokens) {
      longest.Observe(tokens);
    };
  }
}

void EngineMetrics::AddScheduled(const Sequence& sequence,
                                 bool looks_up) const {
  const int32_t found = std::max(sequence.num_found, 0);
  computed_prompt_tokens.Add(sequence.num_prompt - found);
  // Prompts that are scored are not looked up: nothing can be left out.
  if (!looks_up || sequence.score_prompt) return;
  prefix_cache_queries.Add(sequence.num_prompt);
  prefix_cache_hits.Add(found);
}

void EngineMetrics::SetGauges(const EngineStats& stats) const {
  running.Set(stats.running);
  waiting.Set(stats.waiting);
  pages_free.Set(stats.pages_free);
  pages_used.Set(stats.pages_used);
  pages_cached.Set(stats.pages_cached);
  kv_usage.Set(stats.pages_total > 0
                   ? static_cast<double>(stats.pages_used) / stats.pages_total
                   : 0);
  draft_pages_used.Set(stats.draft_pages_used);
  longest_sequence.Set(stats.completions.longest);
  bandwidth_utilization.Set(stats.bandwidth_utilization);
  compute_utilization.Set(stats.compute_utilization);
}

void EngineMetrics::SetPrices(const StepCost::Prices& prices) const {
  step_price.Set(prices.step);
  row_price.Set(prices.row);
  sample_price.Set(prices.sample);
  key_price.Set(prices.key);
}

void EngineMetrics::SetPeaks(const models::RunnerRoofline& roofline) const {
  peak_read.Set(roofline.read_bytes_per_s);
  peak_macs.Set(roofline.macs_per_s);
  barrier.Set(roofline.barrier_s);
}

void EngineMetrics::AddDraft(int32_t num_tokens, int32_t num_accepted) const {
  if (num_tokens == 0) return;
  drafts.Add();
  draft_tokens.Add(num_tokens);
  accepted_tokens.Add(num_accepted);
  const auto places = static_cast<int32_t>(accepted_at.size());
  for (int32_t i = 0; i < std::min(num_accepted, places); ++i) {
    accepted_at[static_cast<size_t>(i)].Add();
  }
}

void EngineMetrics::AddPhases(const models::StepAccount& step) const {
  for (size_t i = 0; i < phase_seconds.size(); ++i) {
    phase_seconds[i].Add(step.seconds[i]);
  }
}

}  // namespace millrace::scheduler
