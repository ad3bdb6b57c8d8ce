// Keyword by keyword: bounds by the tighter one, lists of values by what they
// share, schemas of parts by allOf, which is merged when its turn comes.
#include "models/grammar/schema_merge.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace millrace::models {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kAnnotations[] = {
    "title",         "description",      "default",     "examples",
    "example",       "$schema",          "$id",         "$comment",
    "deprecated",    "readOnly",         "writeOnly",   "contentEncoding",
    "$defs",         "contentMediaType", "definitions", "$anchor",
    "discriminator", "nullable",         "externalDocs"};
constexpr std::string_view kLower[] = {"minimum",       "exclusiveMinimum",
                                       "minLength",     "minItems",
                                       "minProperties", "minContains"};
constexpr std::string_view kUpper[] = {
    "maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"};

template <size_t N>
bool IsOneOf(std::string_view word, const std::string_view (&words)[N]) {
  return std::ranges::find(words, word) != std::end(words);
}

Json List(const Json& value) {
  return value.is_array() ? value : Json::array({value});
}

bool Holds(const Json& list, const Json& value) {
  return std::ranges::any_of(
      list, [&](const Json& one) { return IsSameValue(one, value); });
}

Json Common(const Json& a, const Json& b) {
  Json common = Json::array();
  for (const Json& value : a) {
    if (Holds(b, value)) common.push_back(value);
  }
  return common;
}

Json BothOf(const Json& a, const Json& b) {
  if (a == true || a == b) return b;
  if (b == true) return a;
  if (a == false || b == false) return false;
  return {{"allOf", Json::array({a, b})}};
}

Status CannotJoin(std::string_view keyword) {
  return InvalidArgument("'" + std::string(keyword) +
                         "' stands in two schemas that must both fit, which is "
                         "not supported; write one of them");
}

const Json* Find(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

// What a property must be by one schema; null: anything.
const Json* RuleFor(const Json& schema, const std::string& name) {
  if (const Json* properties = Find(schema, "properties")) {
    if (const Json* rule = Find(*properties, name.c_str())) return rule;
  }
  return Find(schema, "additionalProperties");
}

// Properties and additionalProperties of both.
Status MergeProperties(const Json& a, const Json& b, Json& out) {
  const bool patterns =
      a.contains("patternProperties") || b.contains("patternProperties");
  if (patterns) return CannotJoin("patternProperties");
  Json properties = Json::object();
  for (const Json* schema : {&a, &b}) {
    const Json* named = Find(*schema, "properties");
    if (named == nullptr) continue;
    if (!named->is_object()) {
      return InvalidArgument("'properties' must be an object");
    }
    for (const auto& [name, unused] : named->items()) {
      if (properties.contains(name)) continue;
      const Json* left = RuleFor(a, name);
      const Json* right = RuleFor(b, name);
      // False stays, too: the name is not free then.
      properties[name] = left == nullptr    ? *right
                         : right == nullptr ? *left
                                            : BothOf(*left, *right);
    }
  }
  const Json* left = Find(a, "additionalProperties");
  const Json* right = Find(b, "additionalProperties");
  out["properties"] = std::move(properties);
  if (left == nullptr && right == nullptr) return OkStatus();
  out["additionalProperties"] =
      BothOf(left ? *left : Json(true), right ? *right : Json(true));
  return OkStatus();
}

// A keyword that stands in both, but for properties.
StatusOr<Json> MergeKeyword(const std::string& keyword, const Json& a,
                            const Json& b) {
  if (a == b || IsAnnotation(keyword)) return a;
  if (keyword == "type") {
    Json common = CommonTypes(a, b);
    if (common.empty()) {
      return InvalidArgument("no value has both types, " + a.dump() + " and " +
                             b.dump());
    }
    return common;
  }
  if (keyword == "enum" && a.is_array() && b.is_array()) {
    Json common = Common(a, b);
    if (!common.empty()) return common;
    return InvalidArgument("two 'enum' that must both fit share no value");
  }
  if (keyword == "required" && a.is_array() && b.is_array()) {
    Json all = a;
    for (const Json& name : b) {
      if (!Holds(all, name)) all.push_back(name);
    }
    return all;
  }
  if (keyword == "items" && !a.is_array() && !b.is_array()) return BothOf(a, b);
  if (keyword == "allOf" && a.is_array() && b.is_array()) {
    Json all = a;
    for (const Json& schema : b) all.push_back(schema);
    return all;
  }
  if (a.is_number() && b.is_number()) {
    if (IsOneOf(keyword, kLower)) return std::max(a, b);
    if (IsOneOf(keyword, kUpper)) return std::min(a, b);
  }
  if (keyword == "uniqueItems") return Json(a == true || b == true);
  return CannotJoin(keyword);
}

}  // namespace

bool IsSameValue(const Json& a, const Json& b) {
  if (!a.is_structured() || !b.is_structured()) return a == b;
  return nlohmann::json(a) == nlohmann::json(b);
}

bool IsAnnotation(std::string_view keyword) {
  return keyword.starts_with("x-") || IsOneOf(keyword, kAnnotations);
}

Json CommonTypes(const Json& types, const Json& others) {
  Json common = Json::array();
  for (const Json& a : List(types)) {
    for (const Json& b : List(others)) {
      Json both;
      if (a == b || (a == "integer" && b == "number")) both = a;
      if (a == "number" && b == "integer") both = b;
      if (!both.is_null() && !Holds(common, both)) common.push_back(both);
    }
  }
  return common;
}

StatusOr<Json> MergeSchemas(const Json& a, const Json& b) {
  Json merged = a;
  const auto about_properties = [](const Json& schema) {
    return schema.contains("properties") ||
           schema.contains("additionalProperties") ||
           schema.contains("patternProperties");
  };
  const bool join_properties = about_properties(a) && about_properties(b);
  const bool tuples = a.contains("prefixItems") || b.contains("prefixItems");
  if (tuples && (a.contains("items") || a.contains("prefixItems")) &&
      (b.contains("items") || b.contains("prefixItems"))) {
    return CannotJoin("prefixItems");
  }
  if (join_properties) RETURN_IF_ERROR(MergeProperties(a, b, merged));
  for (const auto& [keyword, value] : b.items()) {
    if (join_properties &&
        (keyword == "properties" || keyword == "additionalProperties")) {
      continue;
    }
    const Json* there = Find(a, keyword.c_str());
    if (there == nullptr) {
      merged[keyword] = value;
      continue;
    }
    ASSIGN_OR_RETURN(merged[keyword], MergeKeyword(keyword, *there, value));
  }
  return merged;
}

}  // namespace millrace::models
