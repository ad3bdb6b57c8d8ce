// How far the predictions of a classifier are from those of a time when it was
// known to be good:
//
//   task: classify
//   drift:
//     baseline: drift.json    # beside the model; left out: nothing to compare
//     window: 1000            # latest predictions that are compared
//     max_classes: 100        # that are counted by themselves
//     min_predictions: 100    # of the window, before anything is compared
//
// GET /v2/models/NAME/drift answers with the window in the baseline's form.
#pragma once

#include <cstdint>
#include <string>

#include "config/base/status.h"

namespace YAML {
class Node;
}

namespace millrace::config {

struct DriftSettings {
  static constexpr int64_t kMaxWindow = 1'000'000;
  static constexpr int64_t kMaxClasses = 1000;

  std::string baseline = {};  // empty: none
  int64_t window = 1000;
  int64_t max_classes = 100;  // those of higher numbers count as one
  // Few predictions are far from any baseline by chance alone. At most
  // `window`.
  int64_t min_predictions = 100;
};

// The value of the key `drift` in config.yaml. May throw what yaml-cpp throws
// for values of another kind. INVALID_ARGUMENT says what is wrong.
StatusOr<DriftSettings> ReadDrift(const YAML::Node& node);

// "window 1000, max_classes 100, min_predictions 100, baseline drift.json": for
// metadata.
std::string DriftText(const DriftSettings& settings);

}  // namespace millrace::config
