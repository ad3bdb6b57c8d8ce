// The key `transducer` of config.yaml.
#include "config/transducer_settings.h"

#include <yaml-cpp/yaml.h>

#include <set>

#include "config/base/utf8.h"
#include "config/values.h"

namespace millrace::config {
StatusOr<TransducerSettings> ReadTransducer(const YAML::Node& node) {
  if (!node.IsMap()) {
    return WrongSetting("transducer",
                        "it needs lines such as 'joiner: joiner.pt2'");
  }
  TransducerSettings settings;
  std::set<std::string> seen;
  for (const auto& entry : node) {
    const std::string key = entry.first.as<std::string>();
    if (!seen.insert(key).second)
      return WrongSetting("transducer", key + " is given twice");
    if (!entry.second.IsScalar())
      return WrongSetting("transducer", key + " needs a single value");
    const std::string& value = entry.second.Scalar();
    std::string* const text = key == "predictor"       ? &settings.predictor
                              : key == "joiner"        ? &settings.joiner
                              : key == "feature_stats" ? &settings.feature_stats
                                                       : nullptr;
    if (text != nullptr) {
      *text = value;
    } else if (key == "segment_length") {
      RETURN_IF_ERROR(ParseValue(
          {.name = key, .min = 1, .max = TransducerSettings::kMaxFrames}, value,
          {}, &settings.segment_length));
    } else if (key == "right_context_length") {
      RETURN_IF_ERROR(ParseValue(
          {.name = key, .min = 0, .max = TransducerSettings::kMaxFrames}, value,
          {}, &settings.right_context_length));
    } else if (key == "max_symbols") {
      RETURN_IF_ERROR(ParseValue(
          {.name = key, .min = 1, .max = TransducerSettings::kMaxSymbols},
          value, {}, &settings.max_symbols));
    } else {
      return WrongSetting(
          "transducer",
          "unknown key '" + Shortened(key, 100) +
              "'; it has predictor, joiner, segment_length, "
              "right_context_length, feature_stats and max_symbols");
    }
  }
  return settings;
}

std::string TransducerText(const TransducerSettings& settings) {
  return "predictor " + settings.predictor + ", joiner " + settings.joiner +
         ", segment_length " + std::to_string(settings.segment_length) +
         ", right_context_length " +
         std::to_string(settings.right_context_length) + ", feature_stats " +
         (settings.feature_stats.empty() ? "none" : settings.feature_stats) +
         ", max_symbols " + std::to_string(settings.max_symbols);
}

}  // namespace millrace::config
