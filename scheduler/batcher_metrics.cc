#include "scheduler/batcher_metrics.h"

namespace millrace::scheduler {
namespace {

double Microseconds(Clock::Duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}
double Seconds(Clock::Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

BatcherMetrics::BatcherMetrics(MetricRegistry& registry,
                               const std::string& model)
    : LoadMetrics(registry, model) {
  const MetricLabels labels = ModelLabels(model);
  compute_time = registry.AddHistogram(
      "millrace_compute_time_seconds",
      "Computing one batch of a graph; the first of new input sizes decides "
      "its plan, too.",
      LatencyBucketsSeconds(), labels);
  for (size_t i = 0; i < closed.size(); ++i) {
    const auto why = static_cast<BatchClosed>(i);
    closed[i] = registry.AddCounter(
        "millrace_batches_total",
        "Batches computed, by why no further request joined.",
        With(labels, "closed", BatchClosedName(why)));
  }

  nv_success =
      registry.AddCounter("nv_inference_request_success",
                          "Requests answered, as Triton counts them.", labels);
  const auto failures = [&](const char* reason) {
    return registry.AddCounter(
        "nv_inference_request_failure",
        "Requests without answer: REJECTED for want of place or time, "
        "CANCELED by their client, BACKEND failed to compute.",
        With(labels, "reason", reason));
  };
  nv_rejected = failures("REJECTED");
  nv_canceled = failures("CANCELED");
  nv_backend = failures("BACKEND");
  nv_count =
      registry.AddCounter("nv_inference_count", "Rows computed.", labels);
  nv_exec_count = registry.AddCounter("nv_inference_exec_count",
                                      "Batches computed.", labels);
  nv_request_us = registry.AddCounter(
      "nv_inference_request_duration_us",
      "Microseconds of answered requests from their queueing to their end.",
      labels);
  nv_queue_us = registry.AddCounter(
      "nv_inference_queue_duration_us",
      "Of those, microseconds waited before the computation.", labels);
  nv_compute_us = registry.AddCounter("nv_inference_compute_infer_duration_us",
                                      "Microseconds of computation.", labels);
  nv_pending =
      registry.AddGauge("nv_inference_pending_request_count",
                        "Requests that wait for their computation.", labels);
}

void BatcherMetrics::Computed(int32_t num_requests, int32_t num_rows,
                              BatchClosed why, Clock::Duration duration) const {
  closed[static_cast<size_t>(why)].Add();
  batch_size.Observe(num_requests);
  compute_time.Observe(Seconds(duration));
  nv_exec_count.Add();
  nv_count.Add(num_rows);
  nv_compute_us.Add(Microseconds(duration) * num_requests);
}

void BatcherMetrics::Began(Clock::Duration queued) const {
  queue_time.Observe(Seconds(queued));
  nv_queue_us.Add(Microseconds(queued));
}

void BatcherMetrics::Ended(const Status& status, Clock::Duration total) const {
  switch (status.code()) {
    case StatusCode::kOk:
      nv_success.Add();
      nv_request_us.Add(Microseconds(total));
      return;
    case StatusCode::kCancelled:
      return nv_canceled.Add();
    case StatusCode::kDeadlineExceeded:
    case StatusCode::kUnavailable:
      return Refused();
    default:
      return nv_backend.Add();
  }
}

}  // namespace millrace::scheduler
