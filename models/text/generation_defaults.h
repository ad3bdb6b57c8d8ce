// Sampling that a model's makers advise.
#pragma once

#include <cstdint>
#include <optional>

namespace millrace::models {

// What requests get that leave these out; absent: our own defaults.
struct GenerationDefaults {
  std::optional<double> temperature = {};
  std::optional<int64_t> top_k = {};
  std::optional<double> top_p = {};
  std::optional<double> min_p = {};
  std::optional<double> repetition_penalty = {};
};

}  // namespace millrace::models
