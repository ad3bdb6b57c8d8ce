// Metrics of a batcher. What its statistics count already becomes
// metrics at each scrape only.
#pragma once

#include <array>
#include <string>

#include "config/base/clock.h"
#include "config/base/metrics.h"
#include "config/base/status.h"
#include "scheduler/batch_job.h"
#include "scheduler/batch_statistics.h"
#include "scheduler/load_metrics.h"

namespace millrace::scheduler {

struct BatcherMetrics : LoadMetrics {
  BatcherMetrics() = default;  // counts nothing
  // `labels`: see ModelLabels.
  BatcherMetrics(MetricRegistry& registry, const MetricLabels& labels);

  // A batch has been computed.
  void Computed(int32_t num_requests, BatchClosed why,
                Clock::Duration duration) const;
  // So long was the instance's thread busy with that batch beside running the
  // graph.
  void Handed(Clock::Duration took) const;
  // A request's computation begins after so long a wait.
  void Began(Clock::Duration queued) const;
  // Of requests that ended so: what had no place or no time is rejected.
  const Counter& Outcome(StatusCode code) const;
  // Takes over what was counted since `before`, and sets `before`.
  void Fold(const BatchCounts& now, BatchCounts& before) const;

  Histogram compute_time;
  Histogram overhead;
  std::array<Counter, kNumBatchClosed> closed;  // by why

  Counter ok;
  Counter rejected;
  Counter cancelled;
  Counter error;
  Counter rows;
  Counter request_seconds;
  Counter queue_seconds;
  Counter compute_input_seconds;
  Counter compute_infer_seconds;
  Counter compute_output_seconds;
};

}  // namespace millrace::scheduler
