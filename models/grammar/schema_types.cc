// One function for each type. Where the library is known to take more than the
// schema does, the keyword is refused (uniqueItems, contains, …).
#include "models/grammar/schema_types.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "models/grammar/format_pattern.h"
#include "models/grammar/pattern.h"
#include "models/grammar/schema_merge.h"

namespace millrace::models {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxCount = 100'000;  // of minLength, maxItems and so on
constexpr int64_t kMaxInteger = int64_t{1} << 53;
constexpr int64_t kMaxMultiple = 10'000;

struct Keyword {
  std::string_view name;
  std::string_view type;
};
constexpr Keyword kKeywords[] = {
    {"minLength", "string"},         {"maxLength", "string"},
    {"pattern", "string"},           {"format", "string"},
    {"minimum", "number"},           {"maximum", "number"},
    {"exclusiveMinimum", "number"},  {"exclusiveMaximum", "number"},
    {"multipleOf", "number"},        {"items", "array"},
    {"prefixItems", "array"},        {"additionalItems", "array"},
    {"minItems", "array"},           {"maxItems", "array"},
    {"uniqueItems", "array"},        {"properties", "object"},
    {"required", "object"},          {"additionalProperties", "object"},
    {"patternProperties", "object"}, {"propertyNames", "object"},
    {"minProperties", "object"},     {"maxProperties", "object"},
};
constexpr std::string_view kTypes[] = {"string", "number", "integer", "boolean",
                                       "null",   "array",  "object"};
constexpr std::string_view kFormats[] = {
    "email",        "date",
    "time",         "date-time",
    "duration",     "ipv4",
    "ipv6",         "uuid",
    "uri",          "uri-reference",
    "uri-template", "hostname",
    "json-pointer", "relative-json-pointer"};

const Json* Find(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

// The schema being written, and where it stands.
struct Place {
  const Json& schema;
  const std::string& path;
  int depth;
  SubschemaWriter& writer;

  Status Error(const std::string& why) const { return writer.Error(path, why); }
  Status Unsupported(const std::string& what) const {
    return Error("has " + what + ", which is not supported");
  }
  StatusOr<Json> Write(const Json& part, const std::string& name) const {
    return writer.Write(part, path + "/" + name, depth + 1);
  }
};

// A count such as minLength; absent: nothing.
StatusOr<std::optional<int64_t>> Count(const Place& at, const char* keyword) {
  const Json* value = Find(at.schema, keyword);
  if (value == nullptr) return std::optional<int64_t>();
  const bool whole = value->is_number() &&
                     std::floor(value->get<double>()) == value->get<double>();
  if (!whole || value->get<double>() < 0 ||
      value->get<double>() > static_cast<double>(kMaxCount)) {
    return at.Error("has the " + std::string(keyword) + " " + value->dump() +
                    ", which must be a whole number from 0 to " +
                    std::to_string(kMaxCount));
  }
  return std::optional(static_cast<int64_t>(value->get<double>()));
}

// Both bounds of a count, written into `out`.
Status WriteCounts(const Place& at, const char* low, const char* high,
                   Json& out) {
  ASSIGN_OR_RETURN(const auto least, Count(at, low));
  ASSIGN_OR_RETURN(const auto most, Count(at, high));
  if (least && most && *least > *most) {
    return at.Error("leaves no value: " + std::string(low) + " is " +
                    std::to_string(*least) + " and " + high + " is " +
                    std::to_string(*most));
  }
  if (least && *least > 0) out[low] = *least;
  if (most) out[high] = *most;
  return OkStatus();
}

StatusOr<Json> WriteString(const Place& at) {
  Json out = {{"type", "string"}};
  RETURN_IF_ERROR(WriteCounts(at, "minLength", "maxLength", out));
  const bool counts = out.size() > 1;
  const bool few = out.value("minLength", 0) <= kMaxRepeats &&
                   out.value("maxLength", 0) <= kMaxRepeats;
  const Json* pattern = Find(at.schema, "pattern");
  const Json* format = Find(at.schema, "format");
  if (pattern != nullptr) {
    if (counts) return at.Unsupported("'pattern' beside a length");
    if (format != nullptr) return at.Unsupported("'pattern' beside 'format'");
    if (!pattern->is_string()) return at.Error("has a pattern that is no text");
    StatusOr<std::string> whole =
        JsonPattern(pattern->get_ref<const std::string&>());
    if (!whole.ok()) {
      return at.Error("cannot be used: " +
                      std::string(whole.status().message()));
    }
    out["pattern"] = *whole;
  }
  if (format != nullptr) {
    if (counts) return at.Unsupported("'format' beside a length");
    if (!format->is_string() ||
        std::ranges::find(kFormats, format->get_ref<const std::string&>()) ==
            std::end(kFormats)) {
      return at.Unsupported("the format " + format->dump());
    }
    const std::string exact =
        FormatPattern(format->get_ref<const std::string&>());
    if (exact.empty()) {
      out["format"] = *format;
    } else {
      ASSIGN_OR_RETURN(out["pattern"], JsonPattern(exact));
    }
  }
  if (out.contains("maxLength") && out["maxLength"] == 0) {
    return Json{{"enum", Json::array({""})}};
  }
  if (counts && few) {
    // The same characters as with lengths, compiled in a third of the time;
    // masks cost 4 us instead of 960 (20 characters, 49,152 tokens).
    std::string length = "{" + std::to_string(out.value("minLength", 0)) + ",";
    if (out.contains("maxLength")) length += out["maxLength"].dump();
    return Json{{"type", "string"}, {"pattern", "^." + length + "}$"}};
  }
  return out;
}

// 1/n, for a whole number n.
bool IsOneByWhole(const Json& value) {
  if (!value.is_number()) return false;
  const auto number = value.get<double>();
  return number > 0 && number < 1 && 1 / std::round(1 / number) == number;
}

// The tighter of an inclusive and an exclusive bound.
StatusOr<Json> WriteInteger(const Place& at) {
  Json out = {{"type", "integer"}};
  std::optional<int64_t> least, most;
  for (const auto& [keyword, value] : at.schema.items()) {
    const bool low = keyword == "minimum" || keyword == "exclusiveMinimum";
    const bool high = keyword == "maximum" || keyword == "exclusiveMaximum";
    if (!low && !high) continue;
    if (!value.is_number() ||
        std::abs(value.get<double>()) > static_cast<double>(kMaxInteger)) {
      return at.Error("has the " + keyword + " " + value.dump() +
                      ", which must be a number within 2^53");
    }
    const auto number = value.get<double>();
    const bool exclusive = keyword.starts_with("exclusive");
    if (low) {
      const double bound =
          exclusive ? std::floor(number) + 1 : std::ceil(number);
      least = std::max(least.value_or(INT64_MIN), static_cast<int64_t>(bound));
    } else {
      const double bound =
          exclusive ? std::ceil(number) - 1 : std::floor(number);
      most = std::min(most.value_or(INT64_MAX), static_cast<int64_t>(bound));
    }
  }
  if (least && most && *least > *most) {
    return at.Error("leaves no value: its least number is " +
                    std::to_string(*least) + ", its greatest " +
                    std::to_string(*most));
  }
  if (least) out["minimum"] = *least;
  if (most) out["maximum"] = *most;
  const Json* multiple = Find(at.schema, "multipleOf");
  // Every integer is a multiple of 0.5.
  if (multiple != nullptr && !IsOneByWhole(*multiple)) {
    const bool whole =
        multiple->is_number() && multiple->get<double>() >= 1 &&
        multiple->get<double>() <= kMaxMultiple &&
        std::floor(multiple->get<double>()) == multiple->get<double>();
    if (!whole) {
      return at.Unsupported("the multipleOf " + multiple->dump() +
                            " (whole numbers from 1 to " +
                            std::to_string(kMaxMultiple) + " are)");
    }
    out["multipleOf"] = static_cast<int64_t>(multiple->get<double>());
  }
  return out;
}

StatusOr<Json> WriteNumber(const Place& at) {
  Json out = {{"type", "number"}};
  for (const auto& [keyword, value] : at.schema.items()) {
    if (keyword == "multipleOf") {
      return at.Unsupported("'multipleOf' for numbers that may have fractions");
    }
    if (!keyword.ends_with("imum")) continue;
    // Bounds are compared digit by digit, with six digits behind the point.
    const double scaled = value.is_number() ? value.get<double>() * 1e6 : 0.5;
    if (std::abs(scaled) > 1e15 ||
        std::abs(scaled - std::round(scaled)) > 1e-3) {
      return at.Error("has the " + keyword + " " + value.dump() +
                      ", which must be a number within 1e9 with at most six "
                      "digits behind the point");
    }
    out[keyword] = value;
  }
  return out;
}

StatusOr<Json> WriteArray(const Place& at) {
  Json out = {{"type", "array"}};
  RETURN_IF_ERROR(WriteCounts(at, "minItems", "maxItems", out));
  const Json* unique = Find(at.schema, "uniqueItems");
  if (unique != nullptr && *unique != false &&
      !(out.contains("maxItems") && out["maxItems"] <= 1)) {
    return at.Unsupported("'uniqueItems'");
  }
  const Json* prefix = Find(at.schema, "prefixItems");
  const Json* items = Find(at.schema, "items");
  if (items != nullptr && items->is_array()) {  // as drafts 4 to 7 spell it
    prefix = items;
    items = Find(at.schema, "additionalItems");
  }
  bool ends = false;  // no item may stand behind those of the prefix
  if (prefix != nullptr) {
    if (!prefix->is_array()) return at.Error("has prefixItems that is no list");
    Json written = Json::array();
    for (size_t i = 0; i < prefix->size(); ++i) {
      ends = (*prefix)[i] == false;
      if (ends) break;
      ASSIGN_OR_RETURN(Json item, at.Write((*prefix)[i], std::to_string(i)));
      written.push_back(std::move(item));
    }
    const auto size = static_cast<int64_t>(written.size());
    if (out.contains("maxItems") && out["maxItems"] < size) {
      return at.Unsupported("a maxItems below the number of its prefixItems");
    }
    if (size > 0) out["prefixItems"] = std::move(written);
  }
  const bool closed = ends || (items == nullptr ? out.contains("prefixItems")
                                                : *items == false);
  if (closed) {
    const int64_t size = out.contains("prefixItems")
                             ? static_cast<int64_t>(out["prefixItems"].size())
                             : 0;
    if (out.contains("minItems") && out["minItems"] > size) {
      return at.Error("leaves no value: minItems is " + out["minItems"].dump() +
                      " but there are " + std::to_string(size) + " items");
    }
    out["items"] = false;
    return out;
  }
  ASSIGN_OR_RETURN(out["items"],
                   at.Write(items == nullptr ? Json(true) : *items, "items"));
  return out;
}

// What is required but not named takes the rule for other names.
StatusOr<Json> NamedProperties(const Place& at, const Json* additional) {
  Json named = Json::object();
  if (const Json* properties = Find(at.schema, "properties")) {
    if (!properties->is_object()) {
      return at.Error("has 'properties' that is no object");
    }
    named = *properties;
  }
  const Json* required = Find(at.schema, "required");
  if (required == nullptr) return named;
  if (!required->is_array()) return at.Error("has 'required' that is no list");
  for (const Json& name : *required) {
    if (!name.is_string()) return at.Error("requires a name that is no text");
    const auto& text = name.get_ref<const std::string&>();
    if (named.contains(text)) continue;
    if (additional != nullptr && *additional == false) {
      return at.Error("leaves no value: '" + text +
                      "' is required but is not one of its properties");
    }
    named[text] = additional != nullptr ? *additional : Json(true);
  }
  return named;
}

// Names by a pattern; nothing else may stand beside them.
StatusOr<Json> WritePatternProperties(const Place& at, const Json& patterns,
                                      const Json& named, const Json* additional,
                                      Json out) {
  if (!patterns.is_object() || patterns.size() != 1) {
    return at.Unsupported("more than one pattern in 'patternProperties'");
  }
  if (!named.empty() || (additional != nullptr && *additional != false)) {
    return at.Unsupported(
        "'patternProperties' beside properties of other names");
  }
  const auto entry = patterns.begin();
  const StatusOr<std::string> pattern = JsonPattern(entry.key());
  if (!pattern.ok()) {
    return at.Error("cannot be used: " +
                    std::string(pattern.status().message()));
  }
  ASSIGN_OR_RETURN(Json value, at.Write(entry.value(), entry.key()));
  out["patternProperties"] = {{*pattern, std::move(value)}};
  out["additionalProperties"] = false;
  return out;
}

StatusOr<Json> WriteObject(const Place& at) {
  Json out = {{"type", "object"}};
  RETURN_IF_ERROR(WriteCounts(at, "minProperties", "maxProperties", out));
  const Json* additional = Find(at.schema, "additionalProperties");
  const Json* patterns = Find(at.schema, "patternProperties");
  const Json* names = Find(at.schema, "propertyNames");
  ASSIGN_OR_RETURN(const Json named, NamedProperties(at, additional));
  // Free names may repeat, so they cannot be counted from below.
  const bool open =
      named.empty() || (additional != nullptr && *additional != false);
  if (open && out.contains("minProperties") && out["minProperties"] > 1) {
    return at.Unsupported("a minProperties above 1 for names that are free");
  }
  if (patterns != nullptr) {
    if (names != nullptr) {
      return at.Unsupported("'propertyNames' beside 'patternProperties'");
    }
    return WritePatternProperties(at, *patterns, named, additional,
                                  std::move(out));
  }
  if (names != nullptr) {
    if (!named.empty()) {
      return at.Unsupported("'propertyNames' beside 'properties'");
    }
    const Json text_and_rule = {
        {"allOf", Json::array({Json{{"type", "string"}}, *names})}};
    ASSIGN_OR_RETURN(Json rule, at.Write(text_and_rule, "propertyNames"));
    if (rule.value("type", "") != "string") {
      return at.Unsupported(
          "'propertyNames' that is more than a pattern or a "
          "length");
    }
    out["propertyNames"] = std::move(rule);
  }
  Json properties = Json::object();
  Json required = Json::array();
  const Json* wanted = Find(at.schema, "required");
  for (const auto& [name, rule] : named.items()) {
    const bool must = wanted != nullptr &&
                      std::ranges::find(*wanted, Json(name)) != wanted->end();
    if (rule == false && !must) {  // it is never there
      if (additional != nullptr && *additional != false) {
        return at.Unsupported("the property '" + name +
                              "' that is false beside names that are free");
      }
      continue;
    }
    ASSIGN_OR_RETURN(properties[name], at.Write(rule, "properties/" + name));
    if (must) required.push_back(name);
  }
  if (!properties.empty()) out["properties"] = std::move(properties);
  if (!required.empty()) out["required"] = std::move(required);
  const Json rule = additional != nullptr ? *additional : Json(named.empty());
  if (rule == false) {
    out["additionalProperties"] = false;
  } else {
    ASSIGN_OR_RETURN(out["additionalProperties"],
                     at.Write(rule, "additionalProperties"));
  }
  return out;
}

StatusOr<Json> WriteOne(const std::string& type, const Place& at) {
  if (type == "string") return WriteString(at);
  if (type == "integer") return WriteInteger(at);
  if (type == "number") return WriteNumber(at);
  if (type == "array") return WriteArray(at);
  if (type == "object") return WriteObject(at);
  return Json{{"type", type}};
}

}  // namespace

bool IsTypeKeyword(std::string_view keyword) {
  return std::ranges::find(kKeywords, keyword, &Keyword::name) !=
         std::end(kKeywords);
}

std::string TypeOf(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::boolean:
      return "boolean";
    case Json::value_t::string:
      return "string";
    case Json::value_t::array:
      return "array";
    case Json::value_t::object:
      return "object";
    case Json::value_t::number_float: {
      const auto number = value.get<double>();
      return std::floor(number) == number ? "integer" : "number";
    }
    default:
      return "integer";
  }
}

bool IsExact(const Json& value) {
  if (value.is_structured()) return std::ranges::all_of(value, IsExact);
  return !value.is_number_float() ||
         std::abs(value.get<double>()) < static_cast<double>(kMaxInteger);
}

StatusOr<Json> WriteTypes(const Json& schema, const std::string& path,
                          int depth, SubschemaWriter& writer) {
  std::vector<std::string> types;
  const auto add = [&](std::string_view type) {
    if (std::ranges::find(types, type) == types.end()) types.emplace_back(type);
  };
  if (const Json* given = Find(schema, "type")) {
    for (const Json& type :
         given->is_array() ? *given : Json::array({*given})) {
      if (!type.is_string() ||
          std::ranges::find(kTypes, type.get_ref<const std::string&>()) ==
              std::end(kTypes)) {
        return writer.Error(
            path, "has the type " + type.dump() + ", which there is not");
      }
      add(type.get_ref<const std::string&>());
    }
    if (types.empty()) return writer.Error(path, "has an empty list of types");
  } else {
    for (const auto& [keyword, unused] : schema.items()) {
      const auto* found = std::ranges::find(kKeywords, keyword, &Keyword::name);
      if (found != std::end(kKeywords)) add(found->type);
    }
    if (types.empty()) return Json::object();  // anything
  }
  const Place place = {schema, path, depth, writer};
  Json branches = Json::array();
  for (const std::string& type : types) {
    ASSIGN_OR_RETURN(Json branch, WriteOne(type, place));
    branches.push_back(std::move(branch));
  }
  if (branches.size() == 1) return branches[0];
  return Json{{"anyOf", std::move(branches)}};
}

}  // namespace millrace::models
