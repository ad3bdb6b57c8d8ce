// Load metrics that engines and batchers share: the same names for both, so
// that one dashboard shows them.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/base/metrics.h"

namespace millrace::scheduler {

struct LoadMetrics {
  LoadMetrics() = default;  // counts nothing
  // `labels`: see ModelLabels.
  LoadMetrics(MetricRegistry& registry, const MetricLabels& labels);

  Counter refused_queue_full;
  Counter refused_deadline;
  Counter refused_draining;
  Histogram batch_size;
  Histogram queue_time;
  Gauge running;
  Gauge waiting;
};

// Gauges of what bounds a model's steps or batches, set once: what a planner of
// a fleet needs to know of a server. Keep them as long as the model.
std::vector<Gauge> ExportLimits(
    MetricRegistry& registry, const MetricLabels& of_model,
    std::initializer_list<std::pair<const char*, double>> limits);

// {model, version}, which all metrics of a model carry: versions that serve
// together have series of their own.
MetricLabels ModelLabels(const std::string& model, const std::string& version);
MetricLabels With(MetricLabels labels, const char* name,
                  std::string_view value);

}  // namespace millrace::scheduler
