// The key `drift` of config.yaml.
#include "config/drift_settings.h"

#include <yaml-cpp/yaml.h>

#include <set>

#include "config/values.h"

namespace millrace::config {
namespace {

Status Wrong(const std::string& message) {
  return InvalidArgument("drift: " + message).At("drift");
}

}  // namespace

StatusOr<DriftSettings> ReadDrift(const YAML::Node& node) {
  if (!node.IsMap()) return Wrong("it needs lines such as 'window: 1000'");
  DriftSettings settings;
  std::set<std::string> seen;
  for (const auto& entry : node) {
    const std::string key = entry.first.as<std::string>();
    if (!seen.insert(key).second) return Wrong(key + " is given twice");
    if (key == "baseline") {
      settings.baseline = entry.second.as<std::string>();
      continue;
    }
    int64_t* const number = key == "window"        ? &settings.window
                            : key == "max_classes" ? &settings.max_classes
                                                   : nullptr;
    if (number == nullptr) {
      return Wrong("unknown key '" + key.substr(0, 100) +
                   "'; it has baseline, window and max_classes");
    }
    if (!entry.second.IsScalar()) return Wrong(key + " needs a whole number");
    RETURN_IF_ERROR(
        ParseValue({.name = key,
                    .min = 1,
                    .max = key == "window" ? DriftSettings::kMaxWindow
                                           : DriftSettings::kMaxClasses},
                   entry.second.Scalar(), {}, number));
  }
  return settings;
}

std::string DriftText(const DriftSettings& settings) {
  return "window " + std::to_string(settings.window) + ", max_classes " +
         std::to_string(settings.max_classes) +
         (settings.baseline.empty() ? std::string(", no baseline")
                                    : ", baseline " + settings.baseline);
}

}  // namespace millrace::config
