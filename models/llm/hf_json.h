// Looking things up in the JSON files of a Hugging Face folder.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "models/llm/source.h"

namespace millrace::models {

// Null when absent or JSON's null.
const nlohmann::ordered_json* Find(const nlohmann::ordered_json& object,
                                   const char* key);
// "" when absent or no text.
std::string TextOf(const nlohmann::ordered_json& object, const char* key);
// Nothing when absent or no number.
std::optional<double> NumberOf(const nlohmann::ordered_json& object,
                               const char* key);
SourceValue HfValueOf(const nlohmann::ordered_json& value);

}  // namespace millrace::models
