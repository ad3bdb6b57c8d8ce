// Each prediction updates the window's histograms; the stability indices are
// computed only when the metrics or the drift route are read.
#include "handlers/drift/drift_monitor.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "config/base/json.h"

namespace millrace::handlers {

static_assert(config::DriftSettings::kMaxClasses < UINT16_MAX);
static_assert(PredictionCounts::kConfidenceBins < UINT8_MAX);

std::shared_ptr<DriftMonitor> DriftMonitor::Create(
    const config::DriftSettings& settings, const std::string& model,
    const std::string& version, std::optional<PredictionCounts> baseline,
    MetricRegistry* registry) {
  return std::shared_ptr<DriftMonitor>(new DriftMonitor(
      settings, model, version, std::move(baseline), registry));
}

DriftMonitor::DriftMonitor(const config::DriftSettings& settings,
                           const std::string& model, const std::string& version,
                           std::optional<PredictionCounts> baseline,
                           MetricRegistry* registry)
    : window_(static_cast<size_t>(settings.window)),
      min_predictions_(static_cast<size_t>(
          std::clamp<int64_t>(settings.min_predictions, 1, settings.window))),
      baseline_(std::move(baseline)),
      registry_(registry),
      labels_({{"model", model}, {"version", version}}),
      counts_(settings.max_classes),
      by_class_(counts_.classes.size()) {
  if (registry_ == nullptr) return;
  std::vector<double> bounds;
  for (int64_t i = 1; i < PredictionCounts::kConfidenceBins; ++i) {
    bounds.push_back(static_cast<double>(i) /
                     static_cast<double>(PredictionCounts::kConfidenceBins));
  }
  confidence_ = registry_->AddHistogram(
      "millrace_prediction_confidence",
      "Score of the best class of each prediction, from 0 to 1.", bounds,
      labels_);
  if (!baseline_.has_value()) return;
  on_scrape_ = registry_->OnScrape([this] { Fold(); });
}

void DriftMonitor::Observe(int64_t class_idx, double confidence) {
  confidence_.Observe(confidence);
  MutexLock lock(mu_);
  const size_t slot = counts_.ClassSlot(class_idx);
  const size_t bin = PredictionCounts::ConfidenceBin(confidence);
  const Prediction now = {static_cast<uint16_t>(slot),
                          static_cast<uint8_t>(bin)};
  if (latest_.size() < window_) {
    latest_.push_back(now);
  } else {
    const Prediction oldest = std::exchange(latest_[next_], now);
    --counts_.classes[oldest.class_slot];
    --counts_.confidence[oldest.confidence_bin];
    next_ = (next_ + 1) % window_;
  }
  ++counts_.classes[slot];
  ++counts_.confidence[bin];
  if (registry_ == nullptr) return;
  std::optional<Counter>& counter = by_class_[slot];
  if (!counter.has_value()) {
    MetricLabels labels = labels_;
    labels["class"] = slot + 1 == counts_.classes.size() ? std::string("other")
                                                         : std::to_string(slot);
    counter = registry_->AddCounter(
        "millrace_predictions_total",
        "Predictions by class; classes beyond max_classes are 'other'.",
        labels);
  }
  counter->Add();
}

std::optional<DriftMonitor::Indices> DriftMonitor::Compare() const {
  if (!baseline_.has_value() || latest_.size() < min_predictions_) {
    return std::nullopt;
  }
  return Indices{StabilityIndex(baseline_->classes, counts_.classes),
                 StabilityIndex(baseline_->confidence, counts_.confidence)};
}

void DriftMonitor::Fold() {
  MutexLock lock(mu_);
  const std::optional<Indices> indices = Compare();
  if (!indices.has_value()) return;
  if (!gauges_.has_value()) {
    const auto gauge = [&](const char* of) {
      MetricLabels labels = labels_;
      labels["of"] = of;
      return registry_->AddGauge(
          "millrace_drift_psi",
          "Population stability index of the latest predictions against the "
          "baseline, of their classes and of their confidence: below 0.1 "
          "stable, above 0.25 shifted. None before drift.min_predictions.",
          labels);
    };
    gauges_ = {gauge("class"), gauge("confidence")};
  }
  gauges_->of_class.Set(indices->of_class);
  gauges_->of_confidence.Set(indices->of_confidence);
}

std::string DriftMonitor::Json() const {
  MutexLock lock(mu_);
  nlohmann::ordered_json json = {{"model", labels_.at("model")},
                                 {"version", labels_.at("version")},
                                 {"window", window_},
                                 {"max_classes", counts_.classes.size() - 1},
                                 {"min_predictions", min_predictions_},
                                 {"predictions", latest_.size()}};
  if (const auto indices = Compare(); indices.has_value()) {
    json["class_psi"] = indices->of_class;
    json["confidence_psi"] = indices->of_confidence;
  }
  json.update(CountsJson(counts_));
  return DumpJson(json);
}

}  // namespace millrace::handlers
