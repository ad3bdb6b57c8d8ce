// Requests that are computed a second time elsewhere, for comparison alone:
//
//   shadow: {version: 2, percent: 20}     # another version of this model
//
//   shadow:
//     - {model: newer, percent: 5, tolerance: 0.001}
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/base/status.h"

namespace YAML {
class Node;
}

namespace millrace::config {

struct ShadowTarget {
  std::string model = {};    // empty: the same
  std::string version = {};  // or label; empty: the highest that serves
  double percent = 100;      // of the requests; above 0
  // Numbers a and b are alike where |a - b| <= tolerance * (1 + |a|).
  double tolerance = 1e-4;
};

struct ShadowSettings {
  static constexpr size_t kMaxTargets = 4;
  std::vector<ShadowTarget> targets;
};

// The value of the key `shadow` in config.yaml. May throw what yaml-cpp throws
// for values of another kind. INVALID_ARGUMENT says what is wrong.
StatusOr<ShadowSettings> ReadShadow(const YAML::Node& node);

// "version 2: 20 %, model newer: 5 %": for metadata.
std::string ShadowText(const ShadowSettings& settings);

}  // namespace millrace::config
