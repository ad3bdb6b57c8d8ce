// The key `external` of config.yaml.
#include "config/external_settings.h"

#include <yaml-cpp/yaml.h>

#include <utility>

#include "config/base/utf8.h"
#include "config/values.h"

namespace millrace::config {
StatusOr<ExternalSettings> ReadExternal(const YAML::Node& node) {
  if (!node.IsMap()) {
    return WrongSetting(
        "external", "it needs lines such as 'command: [python3, handler.py]'");
  }
  ExternalSettings settings;
  const std::pair<SettingInfo, int64_t*> numbers[] = {
      {{.name = "memory_limit",
        .unit = Unit::kBytes,
        .min = 0,
        .max = int64_t{1} << 50},
       &settings.memory_limit_bytes},
      {{.name = "startup_timeout",
        .unit = Unit::kMilliseconds,
        .min = 100,
        .max = 24 * 3'600'000},
       &settings.startup_timeout_ms},
      {{.name = "response_timeout",
        .unit = Unit::kMilliseconds,
        .min = 1,
        .max = 24 * 3'600'000},
       &settings.response_timeout_ms},
      {{.name = "shared_memory",
        .unit = Unit::kBytes,
        .min = 1 << 16,
        .max = int64_t{1} << 36},
       &settings.shared_memory_bytes}};
  for (const auto& entry : node) {
    const std::string key = entry.first.as<std::string>();
    const auto* number =
        std::find_if(std::begin(numbers), std::end(numbers),
                     [&](const auto& each) { return each.first.name == key; });
    if (number != std::end(numbers)) {
      RETURN_IF_ERROR(
          ParseValue(number->first, entry.second.Scalar(), {}, number->second));
    } else if (key == "command") {
      if (!entry.second.IsSequence() || entry.second.size() == 0) {
        return WrongSetting(
            "external", "command needs a list such as [python3, handler.py]");
      }
      for (const auto& word : entry.second) {
        settings.command.push_back(word.as<std::string>());
      }
    } else if (key == "environment") {
      if (!entry.second.IsMap() && !entry.second.IsNull()) {
        return WrongSetting("external",
                            "environment needs a map such as {NAME: value}");
      }
      for (const auto& variable : entry.second) {
        settings.environment[variable.first.as<std::string>()] =
            variable.second.as<std::string>();
      }
    } else {
      return WrongSetting(
          "external",
          "unknown key '" + Shortened(key, 100) +
              "'; it has command, environment, memory_limit, "
              "startup_timeout, response_timeout and shared_memory");
    }
  }
  if (settings.command.empty()) {
    return WrongSetting("external",
                        "it has no command, such as [python3, handler.py]");
  }
  return settings;
}

}  // namespace millrace::config
