#include "models/text/sentence_files.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "config/base/json.h"

namespace millrace::models {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

StatusOr<std::string> ReadPoolingMode(std::string_view json) {
  ASSIGN_OR_RETURN(const Json config, ParseJson(json));
  constexpr std::pair<const char*, const char*> kModes[] = {
      {"pooling_mode_cls_token", "cls"},
      {"pooling_mode_max_tokens", "max"},
      {"pooling_mode_lasttoken", "last"},
      {"pooling_mode_mean_tokens", "mean"}};
  std::string chosen;
  int num_modes = 0;
  for (const auto& [key, mode] : kModes) {
    if (!config.is_object() || config.value(key, Json()) != true) continue;
    chosen = mode;
    ++num_modes;
  }
  if (num_modes == 1) return chosen;
  return Unimplemented(
      "it does not choose one of mean, cls, max and last; name one by "
      "task_options.pooling");
}

StatusOr<bool> ReadNormalizes(std::string_view json) {
  ASSIGN_OR_RETURN(const Json modules, ParseJson(json));
  if (!modules.is_array()) return true;
  bool normalizes = false;
  for (const Json& module : modules) {
    if (!module.is_object()) continue;
    const Json type = module.value("type", Json());
    if (!type.is_string()) continue;
    const auto& name = type.get_ref<const std::string&>();
    normalizes = normalizes || name.ends_with(".Normalize");
    if (name.ends_with(".Dense")) {
      return Unimplemented(
          "it has a dense layer behind the pooling, which is not supported; "
          "export the model with it");
    }
  }
  return normalizes;
}

}  // namespace millrace::models
