// Names, units and help of the engine's metrics, in one place.
#include "scheduler/engine_metrics.h"

#include <vector>

namespace millrace::scheduler {
namespace {

MetricLabels With(MetricLabels labels, const char* name, const char* value) {
  labels[name] = value;
  return labels;
}

}  // namespace

EngineMetrics::EngineMetrics(MetricRegistry& registry,
                             const std::string& model) {
  const MetricLabels labels = {{"model", model}, {"version", "1"}};

  preemptions = registry.AddCounter(
      "millrace_preemptions_total",
      "Sequences put back to waiting for want of KV pages; if it grows "
      "steadily, raise kv_cache_memory_bytes or lower max_num_seqs.",
      labels);
  prompt_tokens = registry.AddCounter("millrace_prompt_tokens_total",
                                      "Prompt tokens taken in.", labels);
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

  draft_tokens =
      registry.AddCounter("millrace_spec_decode_num_draft_tokens_total",
                          "Guessed tokens that steps have checked.", labels);
  accepted_tokens = registry.AddCounter(
      "millrace_spec_decode_num_accepted_tokens_total",
      "Of those, tokens that came true and saved a step.", labels);

  const auto refusals = [&](const char* reason) {
    return registry.AddCounter(
        "millrace_admission_refusals_total",
        "Requests refused a place at once; queue_full asks for more capacity "
        "or a larger max_queue_size.",
        With(labels, "reason", reason));
  };
  refused_queue_full = refusals("queue_full");
  refused_deadline = refusals("deadline");
  refused_draining = refusals("draining");

  batch_size = registry.AddHistogram(
      "millrace_batch_size", "Sequences that took part in a step.",
      {1, 2, 4, 8, 16, 32, 64, 128, 256}, labels);
  queue_time = registry.AddHistogram(
      "millrace_queue_time_seconds",
      "From a request's tokens reaching the engine to its first step.",
      LatencyBucketsSeconds(), labels);
  time_to_first_token = registry.AddHistogram(
      "millrace_time_to_first_token_seconds",
      "From a request's arrival to its first sampled token.",
      LatencyBucketsSeconds(), labels);
  inter_token_latency = registry.AddHistogram(
      "millrace_inter_token_latency_seconds",
      "Between two tokens of one answer.", LatencyBucketsSeconds(), labels);

  running = registry.AddGauge("millrace_requests_running",
                              "Requests that take part in steps.", labels);
  waiting = registry.AddGauge("millrace_requests_waiting",
                              "Requests that wait for a slot or for KV pages.",
                              labels);
  const auto pages = [&](const char* state) {
    return registry.AddGauge("millrace_kv_pages",
                             "Pages of the KV cache by state.",
                             With(labels, "state", state));
  };
  pages_free = pages("free");
  pages_used = pages("used");
  pages_cached = pages("cached");
}

void EngineMetrics::SetGauges(const EngineStats& stats) const {
  running.Set(stats.running);
  waiting.Set(stats.waiting);
  pages_free.Set(stats.pages_free);
  pages_used.Set(stats.pages_used);
  pages_cached.Set(stats.pages_cached);
}

}  // namespace millrace::scheduler
