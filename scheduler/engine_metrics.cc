// Names, units and help of the engine's metrics, in one place.
#include "scheduler/engine_metrics.h"

#include <vector>

namespace millrace::scheduler {

EngineMetrics::EngineMetrics(MetricRegistry& registry, const std::string& model)
    : LoadMetrics(registry, model) {
  const MetricLabels labels = ModelLabels(model);

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
                          "Draft tokens that steps have checked.", labels);
  accepted_tokens = registry.AddCounter(
      "millrace_spec_decode_num_accepted_tokens_total",
      "Of those, tokens that were accepted and saved a step.", labels);
  draft_seconds =
      registry.AddCounter("millrace_spec_decode_draft_seconds_total",
                          "Time that a draft model took, its reading of "
                          "prompts included; 0 without one.",
                          labels);

  for (size_t i = 0; i < phase_seconds.size(); ++i) {
    phase_seconds[i] = registry.AddCounter(
        "millrace_step_phase_seconds_total",
        "Where steps spend their time, all layers together.",
        With(labels, "phase", models::kStepPhaseNames[i]));
  }

  time_to_first_token = registry.AddHistogram(
      "millrace_time_to_first_token_seconds",
      "From a request's arrival to its first sampled token.",
      LatencyBucketsSeconds(), labels);
  inter_token_latency = registry.AddHistogram(
      "millrace_inter_token_latency_seconds",
      "Between two tokens of one completion.", LatencyBucketsSeconds(), labels);

  const auto pages = [&](const char* state) {
    return registry.AddGauge("millrace_kv_pages",
                             "Pages of the KV cache by state.",
                             With(labels, "state", state));
  };
  pages_free = pages("free");
  pages_used = pages("used");
  pages_cached = pages("cached");
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

void EngineMetrics::SetGauges(const EngineStats& stats) const {
  running.Set(stats.running);
  waiting.Set(stats.waiting);
  pages_free.Set(stats.pages_free);
  pages_used.Set(stats.pages_used);
  pages_cached.Set(stats.pages_cached);
  draft_pages_used.Set(stats.draft_pages_used);
  bandwidth_utilization.Set(stats.bandwidth_utilization);
  compute_utilization.Set(stats.compute_utilization);
}

void EngineMetrics::SetPeaks(const models::RunnerRoofline& roofline) const {
  peak_read.Set(roofline.read_bytes_per_s);
  peak_macs.Set(roofline.macs_per_s);
  barrier.Set(roofline.barrier_s);
}

void EngineMetrics::AddPhases(const models::StepAccount& step) const {
  for (size_t i = 0; i < phase_seconds.size(); ++i) {
    phase_seconds[i].Add(step.seconds[i]);
  }
}

}  // namespace millrace::scheduler
