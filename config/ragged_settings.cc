// The key `ragged_inputs` of config.yaml, and the parameter of that name.
#include "config/ragged_settings.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "config/base/utf8.h"

namespace millrace::config {
namespace {

constexpr size_t kMostInputs = 64;
constexpr size_t kMostShown = 100;  // characters of what is wrong

Status Wrong(const std::string& message) {
  return InvalidArgument("ragged_inputs " + message).At("ragged_inputs");
}

Status Add(const std::string& name, const std::string& value,
           RaggedSettings* settings) {
  RaggedInput input{.name = name, .is_mask = value == "mask"};
  const char* end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, input.padding);
  const bool is_number =
      error == std::errc() && stop == end && std::isfinite(input.padding);
  if (name.empty() || (!input.is_mask && !is_number)) {
    return Wrong("pads '" + Shortened(name, kMostShown) + "' with '" +
                 Shortened(value, kMostShown) +
                 "', which is neither a number nor 'mask'");
  }
  for (const RaggedInput& each : settings->inputs) {
    if (each.name != name) continue;
    return Wrong("has '" + Shortened(name, kMostShown) + "' twice; keep one");
  }
  if (settings->inputs.size() == kMostInputs) {
    return Wrong("has more than " + std::to_string(kMostInputs) + " inputs");
  }
  settings->inputs.push_back(std::move(input));
  return OkStatus();
}

}  // namespace

StatusOr<RaggedSettings> ReadRagged(const YAML::Node& node) {
  if (!node.IsMap()) return Wrong("needs lines such as 'input_ids: 0'");
  RaggedSettings settings;
  for (const auto& entry : node) {
    RETURN_IF_ERROR(Add(entry.first.as<std::string>(),
                        entry.second.as<std::string>(), &settings));
  }
  return settings;
}

StatusOr<RaggedSettings> ParseRagged(const std::string& text) {
  RaggedSettings settings;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    const size_t equals = part.rfind('=');
    if (equals == part.npos) {
      return Wrong("has '" + Shortened(part, kMostShown) +
                   "' but needs names with what they are padded with, such as "
                   "input_ids=0,attention_mask=mask");
    }
    RETURN_IF_ERROR(
        Add(part.substr(0, equals), part.substr(equals + 1), &settings));
    begin = end + 1;
  }
  return settings;
}

std::string RaggedText(const RaggedSettings& settings) {
  std::string text;
  for (const RaggedInput& input : settings.inputs) {
    char number[32];
    const auto end = std::to_chars(number, std::end(number), input.padding).ptr;
    text += (text.empty() ? "" : ",") + input.name + "=" +
            (input.is_mask ? "mask" : std::string(number, end));
  }
  return text;
}

}  // namespace millrace::config
