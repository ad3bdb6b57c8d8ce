// The key `ensemble` of config.yaml.
#include "config/ensemble_settings.h"

#include <yaml-cpp/yaml.h>

#include <charconv>
#include <string_view>
#include <utility>

#include "config/base/utf8.h"
#include "config/values.h"

namespace millrace::config {
namespace {

StatusOr<std::map<std::string, std::string>> ReadMap(const YAML::Node& node,
                                                     const std::string& where) {
  std::map<std::string, std::string> map;
  if (!node.IsMap()) {
    return WrongSetting(
        "ensemble", where +
                        " needs lines such as 'x: pixels', the model's name "
                        "before the ensemble's");
  }
  for (const auto& entry : node) {
    map[entry.first.as<std::string>()] = entry.second.as<std::string>();
  }
  return map;
}

StatusOr<EnsembleStep> ReadStep(const YAML::Node& node, size_t number) {
  const std::string where = "step " + std::to_string(number);
  if (!node.IsMap())
    return WrongSetting("ensemble",
                        where + " needs a model, inputs and outputs");
  EnsembleStep step;
  for (const auto& entry : node) {
    const std::string key = entry.first.as<std::string>();
    if (key == "model" || key == "model_name") {
      step.model = entry.second.as<std::string>();
    } else if (key == "version" || key == "model_version") {
      step.version = entry.second.as<int64_t>();
    } else if (key == "inputs" || key == "input_map") {
      ASSIGN_OR_RETURN(step.input_map,
                       ReadMap(entry.second, where + " inputs"));
    } else if (key == "outputs" || key == "output_map") {
      ASSIGN_OR_RETURN(step.output_map,
                       ReadMap(entry.second, where + " outputs"));
    } else if (key == "when") {
      ASSIGN_OR_RETURN(step.when,
                       ParseCondition(entry.second.as<std::string>()));
    } else {
      return WrongSetting(
          "ensemble",
          where + " has '" + Shortened(key, 100) +
              "' but a step has model, version, inputs, outputs and when");
    }
  }
  if (step.model.empty())
    return WrongSetting("ensemble", where + " names no model");
  return step;
}

StatusOr<std::vector<DeclaredTensor>> ReadNames(const YAML::Node& node,
                                                const std::string& key) {
  std::vector<DeclaredTensor> tensors;
  if (!node.IsSequence()) {
    return WrongSetting("ensemble",
                        key + " needs a list of names such as [picture]");
  }
  for (const auto& name : node) {
    tensors.push_back({.name = name.as<std::string>()});
  }
  return tensors;
}

}  // namespace

StatusOr<StepCondition> ParseCondition(const std::string& text) {
  using Compare = StepCondition::Compare;
  static constexpr std::pair<std::string_view, Compare> kCompares[] = {
      {"<", Compare::kLess},     {"<=", Compare::kAtMost},
      {"==", Compare::kEqual},   {"!=", Compare::kNotEqual},
      {">=", Compare::kAtLeast}, {">", Compare::kGreater}};
  const auto wrong = [&] {
    return WrongSetting(
        "ensemble",
        "when is '" + Shortened(text, 100) +
            "' but needs a tensor, one of < <= == != >= > and a number, "
            "such as 'score > 0.5'");
  };
  const size_t at = text.find_first_of("<>=!");
  if (at == std::string::npos || at == 0) return wrong();
  size_t end = at + 1;
  if (end < text.size() && text[end] == '=') ++end;
  StepCondition condition;
  condition.tensor = text.substr(0, at);
  condition.tensor.erase(condition.tensor.find_last_not_of(" \t") + 1);
  bool known = false;
  for (const auto& [word, compare] : kCompares) {
    if (word != std::string_view(text).substr(at, end - at)) continue;
    condition.compare = compare;
    known = true;
  }
  const size_t begin = text.find_first_not_of(" \t", end);
  if (!known || condition.tensor.empty() || begin == std::string::npos) {
    return wrong();
  }
  const char* last = text.data() + text.size();
  const auto [stop, error] =
      std::from_chars(text.data() + begin, last, condition.value);
  if (error != std::errc() || stop != last) return wrong();
  return condition;
}

StatusOr<EnsembleSettings> ReadEnsemble(const YAML::Node& node) {
  if (!node.IsMap())
    return WrongSetting("ensemble", "it needs steps: a list of models");
  EnsembleSettings settings;
  for (const auto& entry : node) {
    const std::string key = entry.first.as<std::string>();
    if (key == "inputs") {
      ASSIGN_OR_RETURN(settings.inputs, ReadNames(entry.second, key));
    } else if (key == "outputs") {
      ASSIGN_OR_RETURN(settings.outputs, ReadNames(entry.second, key));
    } else if (key == "steps" || key == "step") {
      if (!entry.second.IsSequence() ||
          entry.second.size() > EnsembleSettings::kMaxSteps) {
        return WrongSetting("ensemble",
                            "steps needs a list of at most " +
                                std::to_string(EnsembleSettings::kMaxSteps) +
                                " models");
      }
      for (const auto& step : entry.second) {
        ASSIGN_OR_RETURN(EnsembleStep read,
                         ReadStep(step, settings.steps.size() + 1));
        settings.steps.push_back(std::move(read));
      }
    } else {
      return WrongSetting("ensemble",
                          "unknown key '" + Shortened(key, 100) +
                              "'; it has inputs, outputs and steps");
    }
  }
  if (settings.steps.empty())
    return WrongSetting("ensemble", "it has no steps");
  return settings;
}

}  // namespace millrace::config
