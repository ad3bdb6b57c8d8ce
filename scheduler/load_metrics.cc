#include "scheduler/load_metrics.h"

namespace millrace::scheduler {

MetricLabels ModelLabels(const std::string& model, const std::string& version) {
  return {{"model", model}, {"version", version}};
}

MetricLabels With(MetricLabels labels, const char* name,
                  std::string_view value) {
  labels[name] = std::string(value);
  return labels;
}

LoadMetrics::LoadMetrics(MetricRegistry& registry, const MetricLabels& labels) {
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
      "millrace_batch_size",
      "Sequences of a step, or requests that a graph computed together.",
      {1, 2, 4, 8, 16, 32, 64, 128, 256}, labels);
  queue_time = registry.AddHistogram(
      "millrace_queue_time_seconds",
      "From a request reaching the model's queue to the beginning of its "
      "computation.",
      LatencyBucketsSeconds(), labels);
  running = registry.AddGauge("millrace_requests_running",
                              "Requests that are being computed.", labels);
  waiting = registry.AddGauge("millrace_requests_waiting",
                              "Requests that wait for their turn or, at a "
                              "language model, for KV pages.",
                              labels);
}

std::vector<Gauge> ExportLimits(
    MetricRegistry& registry, const MetricLabels& of_model,
    std::initializer_list<std::pair<const char*, double>> limits) {
  std::vector<Gauge> gauges;
  for (const auto& [name, value] : limits) {
    gauges.push_back(registry.AddGauge(
        "millrace_scheduler_limit",
        "What bounds a model's steps or batches, by the setting's name; times "
        "in seconds.",
        With(of_model, "limit", name)));
    gauges.back().Set(value);
  }
  return gauges;
}

}  // namespace millrace::scheduler
