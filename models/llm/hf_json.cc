#include "models/llm/hf_json.h"

#include <nlohmann/json.hpp>

namespace millrace::models {

using Json = nlohmann::ordered_json;

const Json* Find(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(key);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

std::string TextOf(const Json& object, const char* key) {
  const Json* value = Find(object, key);
  return value != nullptr && value->is_string() ? value->get<std::string>()
                                                : "";
}

std::optional<double> NumberOf(const Json& object, const char* key) {
  const Json* value = Find(object, key);
  if (value == nullptr || !value->is_number()) return {};
  return value->get<double>();
}

SourceValue HfValueOf(const Json& value) {
  SourceValue out;
  out.type = value.type_name();
  out.is_array = value.is_array();
  if (value.is_boolean()) {
    out.value = value.get<bool>();
  } else if (value.is_number_integer()) {
    out.value = value.get<int64_t>();
  } else if (value.is_number()) {
    out.value = value.get<double>();
  } else if (value.is_string()) {
    out.value = value.get<std::string>();
  }
  return out;
}

}  // namespace millrace::models
