// The key `shadow` of config.yaml.
#include "config/shadow_settings.h"

#include <yaml-cpp/yaml.h>

#include <charconv>
#include <cmath>
#include <cstdio>
#include <set>

#include "config/base/utf8.h"
#include "config/values.h"

namespace millrace::config {
namespace {

constexpr size_t kMaxShown = 100;  // characters of what is wrong

std::string Short(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", value);
  return text;
}

StatusOr<double> Real(const std::string& key, const YAML::Node& node,
                      double max) {
  const std::string text = node.IsScalar() ? node.Scalar() : "";
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc() && stop == end && std::isfinite(value) &&
      value >= 0 && value <= max) {
    return value;
  }
  return WrongSetting("shadow", key + " is '" + Shortened(text, kMaxShown) +
                                    "' but must be a number from 0 to " +
                                    Short(max));
}

StatusOr<ShadowTarget> ReadTarget(const YAML::Node& node) {
  if (!node.IsMap()) {
    return WrongSetting(
        "shadow", "it needs {version: 2, percent: 20}, or a list of such");
  }
  ShadowTarget target;
  std::set<std::string> seen;
  for (const auto& entry : node) {
    const std::string key = entry.first.as<std::string>();
    if (!seen.insert(key).second)
      return WrongSetting("shadow", key + " is given twice");
    if (key == "model") {
      target.model = entry.second.as<std::string>();
    } else if (key == "version") {
      target.version = entry.second.as<std::string>();
    } else if (key == "percent") {
      ASSIGN_OR_RETURN(target.percent, Real(key, entry.second, 100));
      if (target.percent == 0) {
        return WrongSetting("shadow",
                            "percent is 0; leave the target out instead");
      }
    } else if (key == "tolerance") {
      ASSIGN_OR_RETURN(target.tolerance, Real(key, entry.second, 1e6));
    } else {
      return WrongSetting(
          "shadow", "unknown key '" + Shortened(key, kMaxShown) +
                        "'; it has model, version, percent and tolerance");
    }
  }
  if (target.model.empty() && target.version.empty()) {
    return WrongSetting(
        "shadow", "it names neither a version nor a model to compute with");
  }
  return target;
}

}  // namespace

StatusOr<ShadowSettings> ReadShadow(const YAML::Node& node) {
  ShadowSettings settings;
  if (!node.IsSequence()) {
    ASSIGN_OR_RETURN(ShadowTarget target, ReadTarget(node));
    settings.targets.push_back(std::move(target));
    return settings;
  }
  if (node.size() == 0 || node.size() > ShadowSettings::kMaxTargets) {
    return WrongSetting("shadow",
                        "it has " + std::to_string(node.size()) +
                            " targets but needs 1 to " +
                            std::to_string(ShadowSettings::kMaxTargets));
  }
  for (const auto& each : node) {
    ASSIGN_OR_RETURN(ShadowTarget target, ReadTarget(each));
    settings.targets.push_back(std::move(target));
  }
  return settings;
}

std::string ShadowText(const ShadowSettings& settings) {
  std::string text;
  for (const ShadowTarget& target : settings.targets) {
    if (!text.empty()) text += ", ";
    if (!target.model.empty()) text += "model " + target.model;
    if (!target.model.empty() && !target.version.empty()) text += " ";
    if (!target.version.empty()) text += "version " + target.version;
    text += ": " + Short(target.percent) + " %";
  }
  return text;
}

}  // namespace millrace::config
