// Watches the predictions of one version of a classifier: histograms of class
// and confidence since the load, and how far the latest ones are from a
// baseline.
//
//   monitor->Observe(class_idx, confidence);
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/base/metrics.h"
#include "config/base/mutex.h"
#include "config/drift_settings.h"
#include "handlers/drift/prediction_counts.h"

namespace millrace::handlers {

class DriftMonitor {
 public:
  // Without a baseline nothing is compared. `registry` may be null.
  static std::shared_ptr<DriftMonitor> Create(
      const config::DriftSettings& settings, const std::string& model,
      const std::string& version, std::optional<PredictionCounts> baseline,
      MetricRegistry* registry);

  void Observe(int64_t class_idx, double confidence);

  // The counts of the window, with "predictions" and, where there is a
  // baseline and enough of them, "class_psi" and "confidence_psi": a JSON
  // object that ParseCounts reads.
  std::string Json() const;

 private:
  // One prediction of the window.
  struct Prediction {
    uint16_t class_slot;
    uint8_t confidence_bin;
  };
  struct Indices {
    double of_class = 0;
    double of_confidence = 0;
  };

  DriftMonitor(const config::DriftSettings& settings, const std::string& model,
               const std::string& version,
               std::optional<PredictionCounts> baseline,
               MetricRegistry* registry);
  // None without a baseline, or with fewer predictions than are asked for.
  std::optional<Indices> Compare() const REQUIRES(mu_);
  void Fold();

  const size_t window_;
  const size_t min_predictions_;
  const std::optional<PredictionCounts> baseline_;
  MetricRegistry* const registry_;
  const MetricLabels labels_;
  Histogram confidence_;

  mutable Mutex mu_;
  PredictionCounts counts_ GUARDED_BY(mu_);  // of the window
  // A ring once it is full; next_ is the oldest then.
  std::vector<Prediction> latest_ GUARDED_BY(mu_);
  size_t next_ GUARDED_BY(mu_) = 0;
  // By slot; made with the first prediction, so that classes that never come
  // have no series.
  std::vector<std::optional<Counter>> by_class_ GUARDED_BY(mu_);
  // Made with the first comparison: one that was not made is no 0.
  struct Gauges {
    Gauge of_class;
    Gauge of_confidence;
  };
  std::optional<Gauges> gauges_ GUARDED_BY(mu_);

  std::shared_ptr<void> on_scrape_;  // last: it uses all of the above
};

}  // namespace millrace::handlers
