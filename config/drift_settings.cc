// The key `drift` of config.yaml.
#include "config/drift_settings.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <set>

#include "config/base/utf8.h"
#include "config/values.h"

namespace millrace::config {
StatusOr<DriftSettings> ReadDrift(const YAML::Node& node) {
  if (!node.IsMap())
    return WrongSetting("drift", "it needs lines such as 'window: 1000'");
  DriftSettings settings;
  std::set<std::string> seen;
  for (const auto& entry : node) {
    const std::string key = entry.first.as<std::string>();
    if (!seen.insert(key).second)
      return WrongSetting("drift", key + " is given twice");
    if (key == "baseline") {
      settings.baseline = entry.second.as<std::string>();
      continue;
    }
    int64_t* const number = key == "window"        ? &settings.window
                            : key == "max_classes" ? &settings.max_classes
                            : key == "min_predictions"
                                ? &settings.min_predictions
                                : nullptr;
    if (number == nullptr) {
      return WrongSetting(
          "drift",
          "unknown key '" + Shortened(key, 100) +
              "'; it has baseline, window, max_classes and min_predictions");
    }
    if (!entry.second.IsScalar())
      return WrongSetting("drift", key + " needs a whole number");
    RETURN_IF_ERROR(
        ParseValue({.name = key,
                    .min = 1,
                    .max = key == "max_classes" ? DriftSettings::kMaxClasses
                                                : DriftSettings::kMaxWindow},
                   entry.second.Scalar(), {}, number));
  }
  if (!seen.contains("min_predictions")) {
    settings.min_predictions =
        std::min(settings.min_predictions, settings.window);
  }
  if (settings.min_predictions > settings.window) {
    return WrongSetting(
        "drift",
        "min_predictions is " + std::to_string(settings.min_predictions) +
            " but the window has " + std::to_string(settings.window) +
            " predictions at most; let min_predictions be at most window");
  }
  return settings;
}

std::string DriftText(const DriftSettings& settings) {
  return "window " + std::to_string(settings.window) + ", max_classes " +
         std::to_string(settings.max_classes) + ", min_predictions " +
         std::to_string(settings.min_predictions) +
         (settings.baseline.empty() ? std::string(", no baseline")
                                    : ", baseline " + settings.baseline);
}

}  // namespace millrace::config
