#include "scheduler/batcher_metrics.h"

namespace millrace::scheduler {
namespace {

double Seconds(Clock::Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

BatcherMetrics::BatcherMetrics(MetricRegistry& registry,
                               const MetricLabels& labels)
    : LoadMetrics(registry, labels) {
  compute_time = registry.AddHistogram(
      "millrace_compute_time_seconds",
      "Computing one batch of a graph; the first of new input sizes decides "
      "its plan, too.",
      LatencyBucketsSeconds(), labels);
  overhead = registry.AddHistogram(
      "millrace_batch_overhead_seconds",
      "What one batch takes of its instance's thread beside running the graph: "
      "joining inputs, parting outputs, handing over answers.",
      LatencyBucketsSeconds(), labels);
  for (size_t i = 0; i < closed.size(); ++i) {
    const auto why = static_cast<BatchClosed>(i);
    closed[i] = registry.AddCounter(
        "millrace_batches_total",
        "Batches computed, by why no further request joined.",
        With(labels, "closed", BatchClosedName(why)));
  }

  const auto ended = [&](const char* outcome) {
    return registry.AddCounter(
        "millrace_inference_requests_total",
        "Requests of a graph by how they ended: rejected for want of place or "
        "time, cancelled by their client, error: could not be computed.",
        With(labels, "outcome", outcome));
  };
  ok = ended("ok");
  rejected = ended("rejected");
  cancelled = ended("cancelled");
  error = ended("error");
  rows = registry.AddCounter("millrace_inference_rows_total",
                             "Rows computed by a graph.", labels);
  request_seconds = registry.AddCounter(
      "millrace_inference_request_seconds_total",
      "Of answered requests, from their queueing to their end.", labels);
  const auto stage = [&](const char* name) {
    return registry.AddCounter(
        "millrace_inference_stage_seconds_total",
        "Where answered requests of a graph spent their time; each request of "
        "a batch counts the whole time of its batch.",
        With(labels, "stage", name));
  };
  queue_seconds = stage("queue");
  compute_input_seconds = stage("compute_input");
  compute_infer_seconds = stage("compute_infer");
  compute_output_seconds = stage("compute_output");
}

void BatcherMetrics::Computed(int32_t num_requests, BatchClosed why,
                              Clock::Duration duration) const {
  closed[static_cast<size_t>(why)].Add();
  batch_size.Observe(num_requests);
  compute_time.Observe(Seconds(duration));
}

void BatcherMetrics::Handed(Clock::Duration took) const {
  overhead.Observe(Seconds(took));
}

void BatcherMetrics::Began(Clock::Duration queued) const {
  queue_time.Observe(Seconds(queued));
}

// As BatchStatistics divides them.
const Counter& BatcherMetrics::Outcome(StatusCode code) const {
  switch (code) {
    case StatusCode::kOk:
      return ok;
    case StatusCode::kCancelled:
      return cancelled;
    case StatusCode::kDeadlineExceeded:
    case StatusCode::kUnavailable:
      return rejected;
    default:
      return error;
  }
}

void BatcherMetrics::Fold(const BatchCounts& now, BatchCounts& before) const {
  const auto count = [&](const Counter& counter, CountedTime BatchCounts::*of) {
    counter.Add(static_cast<double>((now.*of).count - (before.*of).count));
  };
  const auto time = [&](const Counter& counter, CountedTime BatchCounts::*of) {
    counter.Add(Seconds((now.*of).total - (before.*of).total));
  };
  count(ok, &BatchCounts::success);
  count(rejected, &BatchCounts::rejected);
  count(cancelled, &BatchCounts::cancelled);
  count(error, &BatchCounts::failure);
  rows.Add(static_cast<double>(now.inferences - before.inferences));
  time(request_seconds, &BatchCounts::success);
  time(queue_seconds, &BatchCounts::queue);
  time(compute_input_seconds, &BatchCounts::compute_input);
  time(compute_infer_seconds, &BatchCounts::compute_infer);
  time(compute_output_seconds, &BatchCounts::compute_output);
  before = now;
}

}  // namespace millrace::scheduler
