// How often a classifier predicted each class, and how confident it was; as
// JSON the baseline that later predictions are compared with:
//
//   {"model": "net", "max_classes": 100,
//    "classes": {"0": 12, "3": 5, "other": 1}, "confidence": [0, …, 18]}
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"

namespace millrace::handlers {

struct PredictionCounts {
  static constexpr int64_t kConfidenceBins = 20;  // equal parts of 0 to 1

  explicit PredictionCounts(int64_t max_classes)
      : classes(static_cast<size_t>(max_classes) + 1) {}

  // By number; the last one counts all classes beyond.
  std::vector<int64_t> classes;
  std::array<int64_t, kConfidenceBins> confidence = {};

  // Where a prediction is counted. A confidence beyond 0 to 1 stands in the
  // first or last bin.
  size_t ClassSlot(int64_t class_idx) const;
  static size_t ConfidenceBin(double confidence);
};

nlohmann::ordered_json CountsJson(const PredictionCounts& counts);

// Further members are ignored. Classes from `max_classes` on count as "other".
// INVALID_ARGUMENT names `where` and what is wrong: no counts, a key that is no
// class, a count that is negative or above 1e15, another number of bins,
// nothing counted, or others that were counted as one with fewer max_classes.
StatusOr<PredictionCounts> ParseCounts(std::string_view text,
                                       const std::string& where,
                                       int64_t max_classes);

// The member "model" of a baseline; "" where it has none.
std::string ModelOfCounts(std::string_view text);

// Population stability index of two histograms of as many bins:
//
//   sum over bins of (a - e) * ln(a / e),  a, e = max(count / total, 1e-4)
//
// The least share keeps bins without counts finite. Neither may be without
// counts at all. Rule of thumb: below 0.1 stable, above 0.25 shifted.
double StabilityIndex(std::span<const int64_t> expected,
                      std::span<const int64_t> actual);

}  // namespace millrace::handlers
