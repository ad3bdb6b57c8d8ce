#include "handlers/tasks/labels.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "config/base/json.h"
#include "config/base/read_file.h"
#include "config/base/utf8.h"

namespace millrace::handlers {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxFileBytes = 16 << 20;
constexpr int64_t kMaxLabels = 1'000'000;

// A text, or the last of a list of texts: ["n02123045", "tabby"].
const std::string* NameIn(const Json& value) {
  const Json* name = &value;
  if (value.is_array() && !value.empty()) name = &value.back();
  return name->get_ptr<const std::string*>();
}

Status Wrong(const std::string& where, const std::string& why) {
  return InvalidArgument(where + " " + why +
                         "; wanted are {\"0\": \"name\"}, {\"name\": 0}, "
                         "[\"name\"], or one "
                         "name a line")
      .At("labels");
}

// {"E": 5}, as vocab.json of transformers has it.
StatusOr<std::vector<std::string>> FromVocabulary(const Json& object,
                                                  const std::string& where) {
  std::vector<std::string> names;
  for (const auto& [name, value] : object.items()) {
    const auto* number = value.get_ptr<const Json::number_unsigned_t*>();
    if (number == nullptr || *number >= kMaxLabels) {
      return Wrong(where, "has '" + Shortened(name, 100) +
                              "' without a class's number below " +
                              std::to_string(kMaxLabels));
    }
    const auto at = static_cast<size_t>(*number);
    if (names.size() <= at) names.resize(at + 1);
    names[at] = name;
  }
  return names;
}

StatusOr<std::vector<std::string>> FromObject(const Json& object,
                                              const std::string& where) {
  std::vector<std::string> names;
  for (const auto& [key, value] : object.items()) {
    int64_t class_idx = -1;
    const auto [end, error] =
        std::from_chars(key.data(), key.data() + key.size(), class_idx);
    if (error != std::errc() || end != key.data() + key.size() ||
        class_idx < 0 || class_idx >= kMaxLabels) {
      return Wrong(where, "has the key '" + Shortened(key, 100) +
                              "', which is no class's number below " +
                              std::to_string(kMaxLabels));
    }
    const std::string* name = NameIn(value);
    if (name == nullptr) return Wrong(where, "has no name for class " + key);
    const auto at = static_cast<size_t>(class_idx);
    if (names.size() <= at) names.resize(at + 1);
    names[at] = *name;
  }
  return names;
}

}  // namespace

StatusOr<Labels> Labels::Load(const TaskParts& parts) {
  const std::string& name = parts.settings->labels;
  if (name.empty()) return Labels();
  ASSIGN_OR_RETURN(const std::string path, FindTaskFile(parts, "labels", name));
  ASSIGN_OR_RETURN(const std::string text,
                   ReadFileOf("labels", path, kMaxFileBytes));
  return Parse(text, path);
}

StatusOr<Labels> Labels::Parse(const std::string& text,
                               const std::string& where) {
  Labels labels;
  const size_t first = text.find_first_not_of(" \t\r\n");
  const char sign = first == std::string::npos ? '\n' : text[first];
  if (sign != '{' && sign != '[') {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      if (!line.empty() && line.back() == '\r') line.pop_back();
      labels.names_.push_back(std::move(line));
    }
    return labels;
  }
  StatusOr<Json> json = ParseJson(text);
  if (!json.ok()) return json.status().Prefixed(where).At("labels");
  const bool by_name =
      json->is_object() && !json->empty() && json->front().is_number();
  if (by_name) {
    ASSIGN_OR_RETURN(labels.names_, FromVocabulary(*json, where));
    return labels;
  }
  if (json->is_object()) {
    ASSIGN_OR_RETURN(labels.names_, FromObject(*json, where));
    return labels;
  }
  for (const Json& each : *json) {
    const std::string* name = NameIn(each);
    if (name == nullptr) {
      return Wrong(where, "has no name for class " +
                              std::to_string(labels.names_.size()));
    }
    labels.names_.push_back(*name);
  }
  return labels;
}

std::string Labels::NameOf(int64_t class_idx) const {
  const auto at = static_cast<size_t>(class_idx);
  if (at < names_.size() && !names_[at].empty()) return names_[at];
  return std::to_string(class_idx);
}

}  // namespace millrace::handlers
