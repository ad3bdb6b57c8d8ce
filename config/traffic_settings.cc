// The key `traffic` of config.yaml.
#include "config/traffic_settings.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "config/base/utf8.h"
#include "config/values.h"

namespace millrace::config {
namespace {

constexpr size_t kMaxName = 64;
constexpr std::string_view kKeys[] = {"weights", "pin_by", "seed",
                                      "variant_header", "variants"};

StatusOr<int64_t> Number(const std::string& name, const YAML::Node& value,
                         int64_t max) {
  int64_t number = 0;
  if (!value.IsScalar())
    return WrongSetting("traffic", name + " needs a whole number");
  const Status status = ParseValue({.name = name, .min = 0, .max = max},
                                   value.Scalar(), {}, &number);
  RETURN_IF_ERROR(status.Prefixed("traffic"));
  return number;
}

Status CheckSize(const std::string& what, const YAML::Node& node) {
  if (node.IsMap() && node.size() > 0 &&
      node.size() <= TrafficSettings::kMaxEntries) {
    return OkStatus();
  }
  return WrongSetting("traffic",
                      what + " needs 1 to " +
                          std::to_string(TrafficSettings::kMaxEntries) +
                          " lines such as '1: 90'");
}

Status ReadWeights(const YAML::Node& node, TrafficSettings* settings) {
  RETURN_IF_ERROR(CheckSize("weights", node));
  int64_t sum = 0;
  for (const auto& entry : node) {
    const std::string version = entry.first.as<std::string>();
    ASSIGN_OR_RETURN(
        const int64_t weight,
        Number("the weight of '" + Shortened(version, kMaxName) + "'",
               entry.second, TrafficSettings::kMaxWeight));
    for (const auto& [other, of_other] : settings->weights) {
      if (other == version) {
        return WrongSetting("traffic", "it weighs '" +
                                           Shortened(version, kMaxName) +
                                           "' twice; keep one of them");
      }
    }
    settings->weights.emplace_back(version, weight);
    sum += weight;
  }
  if (sum > 0) return OkStatus();
  return WrongSetting("traffic", "all weights are 0; give one version more");
}

// Keys that carry secrets are no names of users.
StatusOr<std::string> Header(const std::string& key, const YAML::Node& node) {
  std::string name = node.as<std::string>();
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) {
    return static_cast<char>(std::tolower(c));
  });
  const bool is_name =
      name.starts_with("x-") && name.size() <= kMaxName && name.size() > 2 &&
      std::all_of(name.begin(), name.end(), [](unsigned char c) {
        return std::isalnum(c) != 0 || c == '-';
      });
  if (is_name && name != "x-api-key" && name != "x-request-id") return name;
  return WrongSetting(
      "traffic", key + " is '" + Shortened(name, kMaxName) +
                     "' but must be a header that begins with 'X-', such as "
                     "X-User-Id, of at most " +
                     std::to_string(kMaxName) +
                     " letters, digits and '-', and neither X-Api-Key nor "
                     "X-Request-Id");
}

Status ReadVariants(const YAML::Node& node, TrafficSettings* settings) {
  RETURN_IF_ERROR(CheckSize("variants", node));
  for (const auto& entry : node) {
    const std::string value = entry.first.as<std::string>();
    if (value.empty() || value.size() > kMaxName) {
      return WrongSetting("traffic", "a variant's name has 1 to " +
                                         std::to_string(kMaxName) +
                                         " characters");
    }
    if (!settings->variants.emplace(value, entry.second.as<std::string>())
             .second) {
      return WrongSetting("traffic",
                          "it has the variant '" + value + "' twice; keep one");
    }
  }
  return OkStatus();
}

Status ReadKey(const std::string& key, const YAML::Node& value,
               TrafficSettings* settings) {
  if (key == "weights") return ReadWeights(value, settings);
  if (key == "variants") return ReadVariants(value, settings);
  if (key == "seed") {
    ASSIGN_OR_RETURN(settings->seed, Number(key, value, INT64_MAX));
    return OkStatus();
  }
  std::string* const header =
      key == "pin_by" ? &settings->pin_by : &settings->variant_header;
  ASSIGN_OR_RETURN(*header, Header(key, value));
  return OkStatus();
}

}  // namespace

StatusOr<TrafficSettings> ReadTraffic(const YAML::Node& node) {
  TrafficSettings settings;
  RETURN_IF_ERROR(CheckSize("it", node));
  const auto is_key = [](const std::string& key) {
    return std::find(std::begin(kKeys), std::end(kKeys), key) !=
           std::end(kKeys);
  };
  bool has_keys = false;
  for (const auto& entry : node) {
    has_keys |= is_key(entry.first.as<std::string>());
  }
  if (!has_keys) {
    RETURN_IF_ERROR(ReadWeights(node, &settings));
    return settings;
  }
  std::set<std::string> seen;
  for (const auto& entry : node) {
    const std::string key = entry.first.as<std::string>();
    if (!is_key(key)) {
      return WrongSetting(
          "traffic", "unknown key '" + Shortened(key, kMaxName) +
                         "'; it has weights, pin_by, seed, variant_header and "
                         "variants");
    }
    if (!seen.insert(key).second)
      return WrongSetting("traffic", key + " is given twice");
    RETURN_IF_ERROR(ReadKey(key, entry.second, &settings));
  }
  if (settings.weights.empty() && !settings.pin_by.empty()) {
    return WrongSetting(
        "traffic",
        "pin_by pins users to versions that weights name; add weights");
  }
  if (settings.variant_header.empty() != settings.variants.empty()) {
    return WrongSetting(
        "traffic", "variant_header and variants belong together; give both");
  }
  return settings;
}

StatusOr<TrafficSettings> ResolveVersions(
    TrafficSettings settings, const std::map<std::string, std::string>& labels,
    const std::vector<std::string>& versions) {
  const auto resolve = [&](std::string* version) {
    if (const auto at = labels.find(*version); at != labels.end()) {
      *version = at->second;
    }
    if (std::find(versions.begin(), versions.end(), *version) !=
        versions.end()) {
      return OkStatus();
    }
    std::string all;
    for (const std::string& each : versions) {
      all += (all.empty() ? "" : ", ") + each;
    }
    return WrongSetting(
        "traffic",
        "it names '" + Shortened(*version, kMaxName) +
            "', which is neither a version that is served (" + all +
            ") nor a label of version_labels; version_policy: all serves "
            "every version there is");
  };
  std::set<std::string> seen;
  for (auto& [version, weight] : settings.weights) {
    RETURN_IF_ERROR(resolve(&version));
    if (!seen.insert(version).second) {
      return WrongSetting(
          "traffic", "it weighs version " + version +
                         " twice, by its number and a label; keep one of them");
    }
  }
  for (auto& [value, version] : settings.variants) {
    RETURN_IF_ERROR(resolve(&version));
  }
  return settings;
}

std::string TrafficText(const TrafficSettings& settings) {
  std::string text;
  for (const auto& [version, weight] : settings.weights) {
    text += (text.empty() ? "" : ",") + version + "=" + std::to_string(weight);
  }
  const auto separate = [&] { return text.empty() ? "" : " "; };
  if (!settings.pin_by.empty()) {
    text += separate() + ("pin_by=" + settings.pin_by);
    text += " seed=" + std::to_string(settings.seed);
  }
  if (!settings.variants.empty()) {
    text += separate() + settings.variant_header;
    char mark = ':';
    for (const auto& [value, version] : settings.variants) {
      text += mark + value + "=" + version;
      mark = ',';
    }
  }
  return text;
}

}  // namespace millrace::config
