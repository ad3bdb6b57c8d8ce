#include "models/graph/pt2/json_fields.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "config/base/json.h"
#include "config/base/utf8.h"

namespace millrace::models::graph::pt2 {
namespace {

Status Missing(const char* key, const char* kind) {
  return InvalidArgument("the program's JSON has no " + std::string(kind) +
                         " '" + key + "' where one must be");
}

}  // namespace

std::string Shown(std::string_view text) {
  std::string shown = ReplaceInvalidUtf8(Shortened(text, 120));
  for (char& c : shown) {
    if (static_cast<unsigned char>(c) < 32 || c == 127) c = ' ';
  }
  return shown;
}

const Json* FindMember(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

StatusOr<const Json*> Member(const Json& object, const char* key) {
  const Json* member = FindMember(object, key);
  if (member == nullptr) return Missing(key, "value");
  return member;
}

StatusOr<const Json*> ArrayMember(const Json& object, const char* key) {
  const Json* member = FindMember(object, key);
  if (member == nullptr || !member->is_array()) return Missing(key, "list");
  return member;
}

StatusOr<const Json*> ObjectMember(const Json& object, const char* key) {
  const Json* member = FindMember(object, key);
  if (member == nullptr || !member->is_object()) return Missing(key, "object");
  return member;
}

StatusOr<std::string> TextMember(const Json& object, const char* key) {
  const Json* member = FindMember(object, key);
  if (member == nullptr || !member->is_string()) return Missing(key, "text");
  return member->get<std::string>();
}

StatusOr<int64_t> AsInt(const Json& value) {
  if (value.is_number_unsigned() &&
      value.get<uint64_t>() >
          static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return InvalidArgument("the program's JSON has an integer beyond 2^63");
  }
  if (!value.is_number_integer()) {
    return InvalidArgument("the program's JSON has " +
                           Shown(Shortened(DumpJson(value), 40)) +
                           " where an integer must be");
  }
  return value.get<int64_t>();
}

StatusOr<double> AsFloat(const Json& value) {
  if (value.is_number()) return value.get<double>();
  if (value == "Infinity") return std::numeric_limits<double>::infinity();
  if (value == "-Infinity") return -std::numeric_limits<double>::infinity();
  if (value == "NaN") return std::numeric_limits<double>::quiet_NaN();
  return InvalidArgument("the program's JSON has " +
                         Shown(Shortened(DumpJson(value), 40)) +
                         " where a number must be");
}

StatusOr<std::pair<std::string, const Json*>> OnlyMember(const Json& object) {
  if (!object.is_object() || object.size() != 1) {
    return InvalidArgument("the program's JSON has " +
                           Shown(Shortened(DumpJson(object), 40)) +
                           " where an object with one key must be");
  }
  const auto member = object.begin();
  return std::pair(member.key(), &member.value());
}

}  // namespace millrace::models::graph::pt2
