// The key `micro_batching` of config.yaml.
#include "config/micro_batching_settings.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <span>
#include <utility>

#include "config/base/utf8.h"
#include "config/values.h"

namespace millrace::config {
namespace {

using Number = std::pair<SettingInfo, int64_t*>;

Status ReadNumber(std::span<const Number> numbers, const std::string& key,
                  const YAML::Node& value, const std::string& known) {
  const auto number =
      std::find_if(numbers.begin(), numbers.end(),
                   [&](const Number& each) { return each.first.name == key; });
  if (number == numbers.end()) {
    return WrongSetting(
        "micro_batching",
        "unknown key '" + Shortened(key, 100) + "'; it has " + known);
  }
  if (!value.IsScalar())
    return WrongSetting("micro_batching", key + " needs a whole number");
  return ParseValue(number->first, value.Scalar(), {}, number->second);
}

}  // namespace

StatusOr<MicroBatchingSettings> ReadMicroBatching(const YAML::Node& node) {
  MicroBatchingSettings settings;
  const auto stage = [](std::string_view name, int64_t* value) {
    return Number{
        {.name = name, .min = 1, .max = MicroBatchingSettings::kMaxParallelism},
        value};
  };
  const Number size[] = {{{.name = "micro_batch_size",
                           .min = 1,
                           .max = MicroBatchingSettings::kMaxSize},
                          &settings.micro_batch_size}};
  const Number stages[] = {stage("preprocess", &settings.preprocess),
                           stage("inference", &settings.inference),
                           stage("postprocess", &settings.postprocess)};
  if (!node.IsMap())
    return WrongSetting("micro_batching",
                        "it needs lines such as 'micro_batch_size: 4'");
  for (const auto& entry : node) {
    const std::string key = entry.first.as<std::string>();
    if (key != "parallelism") {
      RETURN_IF_ERROR(ReadNumber(size, key, entry.second,
                                 "micro_batch_size and parallelism"));
      continue;
    }
    if (!entry.second.IsMap()) {
      return WrongSetting("micro_batching",
                          "parallelism needs lines such as 'preprocess: 2'");
    }
    for (const auto& of_stage : entry.second) {
      RETURN_IF_ERROR(ReadNumber(
          stages, of_stage.first.as<std::string>(), of_stage.second,
          "micro_batch_size, and in parallelism preprocess, inference and "
          "postprocess"));
    }
  }
  return settings;
}

std::string MicroBatchingText(const MicroBatchingSettings& settings) {
  return "size " + std::to_string(settings.micro_batch_size) + ", preprocess " +
         std::to_string(settings.preprocess) + ", inference " +
         std::to_string(settings.inference) + ", postprocess " +
         std::to_string(settings.postprocess);
}

}  // namespace millrace::config
