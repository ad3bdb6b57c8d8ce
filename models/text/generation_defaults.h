// Sampling that a model's makers advise.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace::models {

// What requests get that leave these out; absent: our own defaults.
struct GenerationDefaults {
  std::optional<double> temperature = {};
  std::optional<int64_t> top_k = {};
  std::optional<double> top_p = {};
  std::optional<double> min_p = {};
  std::optional<double> repetition_penalty = {};
};

// Those that are there, by the names of a request's fields.
inline std::vector<std::pair<std::string_view, double>> NamedValues(
    const GenerationDefaults& defaults) {
  std::vector<std::pair<std::string_view, double>> values;
  const auto add = [&](std::string_view name, const auto& value) {
    if (value) values.emplace_back(name, static_cast<double>(*value));
  };
  add("temperature", defaults.temperature);
  add("top_k", defaults.top_k);
  add("top_p", defaults.top_p);
  add("min_p", defaults.min_p);
  add("repetition_penalty", defaults.repetition_penalty);
  return values;
}

}  // namespace millrace::models
