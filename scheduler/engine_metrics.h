// Metrics of the engine: one struct of counters and histograms, and the board
// where the engine thread posts its numbers once a step for other threads.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "config/base/metrics.h"
#include "config/base/mutex.h"
#include "models/llm/runner.h"
#include "scheduler/engine.h"
#include "scheduler/job.h"
#include "scheduler/load_metrics.h"
#include "scheduler/step_cost.h"

namespace millrace::scheduler {

// Thread-safe.
class StatsBoard {
 public:
  void Post(const EngineStats& stats) {
    MutexLock lock(mu_);
    stats_ = stats;
  }
  // The job has ended so, now.
  void AddEnding(const Job& job, const StreamEnd& end, Clock::Time now);
  EngineStats Read() const {
    MutexLock lock(mu_);
    EngineStats stats = stats_;
    stats.completions = completions_;
    return stats;
  }

 private:
  mutable Mutex mu_;
  EngineStats stats_ GUARDED_BY(mu_);
  CompletionCounts completions_ GUARDED_BY(mu_);
};

struct EngineMetrics : LoadMetrics {
  EngineMetrics() = default;  // counts nothing
  // `labels`: see ModelLabels. `draft_tokens`: of a sequence and step, at
  // most.
  EngineMetrics(MetricRegistry& registry, const MetricLabels& labels,
                int32_t num_pages, const std::string& device,
                int32_t draft_tokens);

  Counter preemptions;
  Counter prompt_tokens;
  Counter computed_prompt_tokens;
  Counter generation_tokens;
  Counter prefix_cache_queries;
  Counter prefix_cache_hits;
  Counter offload_hit_tokens;
  Counter drafts;
  Counter draft_tokens;
  Counter accepted_tokens;
  std::vector<Counter> accepted_at;  // by the place in the draft
  Counter draft_seconds;
  Counter steps_ahead;
  Counter discarded_rows;
  std::array<Counter, models::kStepPhaseNames.size()> phase_seconds;
  Histogram time_to_first_token;
  Histogram inter_token_latency;
  Histogram step_tokens;

  // Of each completion, when it ends.
  Counter ended_stop;
  Counter ended_length;
  Counter ended_cancelled;
  Counter ended_error;
  Histogram completion_time;
  Histogram inference_time;
  Histogram prefill_time;
  Histogram decode_time;
  Histogram time_per_token;
  Histogram request_prompt_tokens;
  Histogram request_computed_prompt;
  Histogram request_generation_tokens;
  Histogram request_max_tokens;
  Histogram request_n;  // of each request
  // Of each request, when its last completion ends.
  Histogram request_longest;

  // Set at each scrape from the board, as running and waiting are.
  Gauge pages_free;
  Gauge pages_used;
  Gauge pages_cached;
  Gauge kv_usage;
  Gauge draft_pages_used;
  Gauge longest_sequence;
  Gauge bandwidth_utilization;
  Gauge compute_utilization;
  Gauge step_price;
  Gauge row_price;
  Gauge sample_price;
  Gauge key_price;
  // Set once.
  Gauge kv_info;
  Gauge peak_read;
  Gauge peak_macs;
  Gauge barrier;

  void SetGauges(const EngineStats& stats) const;
  void SetPrices(const StepCost::Prices& prices) const;
  void SetPeaks(const models::RunnerRoofline& roofline) const;
  void AddPhases(const models::StepAccount& step) const;
  // A step has checked a draft of so many tokens.
  void AddDraft(int32_t num_tokens, int32_t num_accepted) const;
  // The job has ended so, now.
  void AddEnding(const Job& job, const StreamEnd& end, Clock::Time now) const;
  // Its first step is planned; `looks_up`: prompts are, in the prefix cache.
  void AddScheduled(const Sequence& sequence, bool looks_up) const;

 private:
  void AddRequestMetrics(MetricRegistry& registry, const MetricLabels& labels);
};

}  // namespace millrace::scheduler
