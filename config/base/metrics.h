// Metrics: each class declares its own as a struct of Counter, Gauge and
// Histogram made once from a MetricRegistry; updating one costs a few
// nanoseconds (label sets are resolved at creation, never on the hot path).
//
//   struct EngineMetrics {
//     EngineMetrics(MetricRegistry& registry, const MetricLabels& labels)
//         : preemptions(registry.AddCounter(
//               "millrace_preemptions_total",
//               "Sequences put back to waiting for want of KV pages.",
//               labels)) {}
//     Counter preemptions;
//   };
//
// Names end in a unit (_seconds, _bytes) or _total; help says what an operator
// can act on. prometheus-cpp stands behind; its headers stay in the source.
//
// A handle owns its series together with its copies and with handles of the
// same name and labels: when the last of them dies, the series leaves /metrics.
// So a model that is unloaded takes its series along, and while two versions of
// it overlap they count into one series. Keep the handle; a series whose handle
// was dropped at once is never shown. Handles may outlive the registry.
// Thread-safe.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/metric_alias.h"

namespace millrace {

using MetricLabels = std::map<std::string, std::string>;

class Counter {
 public:
  Counter() = default;  // counts nothing: for tests without a registry
  void Add(double by = 1) const;
  double value() const;

 private:
  friend class MetricRegistry;
  // prometheus::Counter, alive while `owner_` is.
  void* impl_ = nullptr;
  std::shared_ptr<void> owner_;
};

class Gauge {
 public:
  Gauge() = default;
  void Set(double value) const;
  void Add(double by) const;
  double value() const;

 private:
  friend class MetricRegistry;
  void* impl_ = nullptr;
  std::shared_ptr<void> owner_;
};

class Histogram {
 public:
  Histogram() = default;
  void Observe(double value) const;
  // From now on this trace is the exemplar of the value's bucket; `trace_id`:
  // 32 hexadecimal digits, empty: there is none.
  void Observe(double value, const std::string& trace_id) const;

 private:
  friend class MetricRegistry;
  void* impl_ = nullptr;  // HistogramSeries of metrics.cc
  std::shared_ptr<void> owner_;
};

class MetricRegistry {
 public:
  MetricRegistry();
  ~MetricRegistry();

  // The same name and labels give the same metric. The same name with another
  // help or kind is our own mistake and stops the process.
  Counter AddCounter(std::string_view name, std::string_view help,
                     const MetricLabels& labels = {});
  Gauge AddGauge(std::string_view name, std::string_view help,
                 const MetricLabels& labels = {});
  Histogram AddHistogram(std::string_view name, std::string_view help,
                         const std::vector<double>& bucket_bounds,
                         const MetricLabels& labels = {});

  // Runs at each scrape, before serialising: folds cheap counters of hot paths
  // into the metrics above. Removed when the returned object dies.
  [[nodiscard]] std::shared_ptr<void> OnScrape(std::function<void()> fold);

  // Shows series under further names, too; see metric_alias.h.
  void ExportAlso(std::vector<MetricAlias> aliases);

  // Prometheus text exposition format 0.0.4.
  std::string Text();
  // OpenMetrics text 1.0.0, which has exemplars; see open_metrics.h.
  std::string OpenMetricsText();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// 1 ms to 60 s, near-logarithmic: latencies of requests and tokens.
const std::vector<double>& LatencyBucketsSeconds();

}  // namespace millrace
