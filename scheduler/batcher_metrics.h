// What a batcher tells an operator: our own metrics, and those of Triton by
// their names, which its dashboards and autoscalers read.
#pragma once

#include <array>
#include <string>

#include "config/base/clock.h"
#include "config/base/metrics.h"
#include "config/base/status.h"
#include "scheduler/batch_job.h"
#include "scheduler/load_metrics.h"

namespace millrace::scheduler {

struct BatcherMetrics : LoadMetrics {
  BatcherMetrics() = default;  // counts nothing
  BatcherMetrics(MetricRegistry& registry, const std::string& model);

  // A batch has been computed.
  void Computed(int32_t num_requests, int32_t num_rows, BatchClosed why,
                Clock::Duration duration) const;
  // A request's computation begins after so long a wait.
  void Began(Clock::Duration queued) const;
  // Its ending, so long after it was submitted.
  void Ended(const Status& status, Clock::Duration total) const;
  // Refused before it had a place.
  void Refused() const { nv_rejected.Add(); }

  Histogram compute_time;
  std::array<Counter, kNumBatchClosed> closed;  // by why

  Counter nv_success;
  Counter nv_rejected;
  Counter nv_canceled;
  Counter nv_backend;
  Counter nv_count;
  Counter nv_exec_count;
  Counter nv_request_us;
  Counter nv_queue_us;
  Counter nv_compute_us;
  Gauge nv_pending;  // set at each scrape, as running and waiting are
};

}  // namespace millrace::scheduler
