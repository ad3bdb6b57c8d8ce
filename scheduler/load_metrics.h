// What every model tells of its load, be it served by an engine or a batcher:
// the same names, so that one dashboard shows both.
#pragma once

#include <string>
#include <string_view>

#include "config/base/metrics.h"

namespace millrace::scheduler {

struct LoadMetrics {
  LoadMetrics() = default;  // counts nothing
  LoadMetrics(MetricRegistry& registry, const std::string& model);

  Counter refused_queue_full;
  Counter refused_deadline;
  Counter refused_draining;
  Histogram batch_size;
  Histogram queue_time;
  Gauge running;
  Gauge waiting;
};

// {model, version}, which all metrics of a model carry.
MetricLabels ModelLabels(const std::string& model);
MetricLabels With(MetricLabels labels, const char* name,
                  std::string_view value);

}  // namespace millrace::scheduler
