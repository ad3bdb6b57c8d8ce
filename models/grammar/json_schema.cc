// Recursion over the schema as it was written; what comes out is made anew, so
// that a reference always finds its target as it was written.
#include "models/grammar/json_schema.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "config/base/json.h"
#include "models/grammar/schema_merge.h"
#include "models/grammar/schema_types.h"

namespace millrace::models {
namespace {

using Json = nlohmann::ordered_json;

// Keywords that are combined here; those of one type are in schema_types.cc.
constexpr std::string_view kCombined[] = {"type",  "enum",  "const", "$ref",
                                          "allOf", "anyOf", "oneOf"};

// A reference is a fragment of a URI (RFC 6901, section 6). None: after a '%'
// do not stand two hexadecimal digits.
std::optional<std::string> PercentDecoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    uint8_t byte = 0;
    const std::string_view digits = text.substr(i + 1, 2);
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
    if (error != std::errc() || digits.size() != 2 ||
        end != digits.data() + 2) {
      return std::nullopt;
    }
    out += static_cast<char>(byte);
    i += 2;
  }
  return out;
}

class Normaliser final : public SubschemaWriter {
 public:
  explicit Normaliser(const Json& root) : root_(root) {}

  StatusOr<Json> Root() {
    ASSIGN_OR_RETURN(Json schema, Write(root_, "", 0));
    // One after the other, so that a chain of references needs no deep stack.
    for (size_t i = 0; i < targets_.size(); ++i) {
      const Target target = targets_[i];
      ASSIGN_OR_RETURN(defs_[target.name],
                       Write(*target.schema, target.path, 1));
    }
    if (!defs_.empty()) schema["$defs"] = std::move(defs_);
    return schema;
  }

  StatusOr<Json> Write(const Json& schema, const std::string& path,
                       int depth) override;
  Status Error(const std::string& path, const std::string& why) const override {
    return InvalidArgument(
        "the schema" + (path.empty() ? "" : " at '" + path + "'") + " " + why);
  }

 private:
  // What a reference names, to be written under a name in $defs.
  struct Target {
    std::string name;
    const Json* schema;
    std::string path;
  };

  StatusOr<const Json*> Find(const Json& ref, const std::string& path) const;
  StatusOr<Json> WriteRef(const Json& ref, const std::string& path);
  // References and allOf at the top of a schema are replaced by what they say.
  StatusOr<Json> Flat(const Json& schema, const std::string& path, int depth);
  StatusOr<Json> WriteBranches(const Json& schema, const char* keyword,
                               const std::string& path, int depth);
  StatusOr<Json> WriteValues(const Json& schema, const std::string& path);
  // The same for each required property: once, since every pair of branches is
  // compared.
  Status FlattenRequired(Json& schema, const std::string& path, int depth);
  Status CheckDisjoint(const Json& branches, const std::string& path,
                       int depth);
  Status CheckKeywords(const Json& schema, const std::string& path) const;
  Status CountOne(const std::string& path, int depth);

  const Json& root_;
  Json defs_ = Json::object();
  std::unordered_map<std::string, std::string> names_;  // of references
  std::vector<Target> targets_;
  int num_schemas_ = 0;
  int num_values_ = 0;
};

Status Normaliser::CountOne(const std::string& path, int depth) {
  if (depth > kMaxSchemaDepth) {
    return InvalidArgument("the schema is nested deeper than " +
                           std::to_string(kMaxSchemaDepth) + " levels");
  }
  if (++num_schemas_ <= kMaxSubschemas) return OkStatus();
  return Error(path, "is one of more than " + std::to_string(kMaxSubschemas) +
                         " schemas, which is the limit");
}

Status Normaliser::CheckKeywords(const Json& schema,
                                 const std::string& path) const {
  for (const auto& [keyword, value] : schema.items()) {
    const bool known =
        IsAnnotation(keyword) || IsTypeKeyword(keyword) ||
        std::ranges::find(kCombined, keyword) != std::end(kCombined);
    if (!known) {
      return Error(path, "has the keyword '" + keyword +
                             "', which is not supported; leave it out");
    }
  }
  return OkStatus();
}

StatusOr<const Json*> Normaliser::Find(const Json& ref,
                                       const std::string& path) const {
  const std::string text = ref.is_string() ? ref.get<std::string>() : "";
  if (text == "#") return &root_;
  const std::optional<std::string> pointer =
      text.starts_with("#/") ? PercentDecoded(text.substr(1)) : std::nullopt;
  if (!pointer) {
    return Error(path, "has the $ref " + ref.dump() +
                           ", but only references to places in the same "
                           "schema, such as \"#/$defs/name\", are supported");
  }
  const Json* found = nullptr;
  try {
    found = &root_.at(Json::json_pointer(*pointer));
  } catch (const Json::exception&) {
    return Error(path,
                 "has the $ref " + ref.dump() + ", where no schema stands");
  }
  return found;
}

StatusOr<Json> Normaliser::WriteRef(const Json& ref, const std::string& path) {
  ASSIGN_OR_RETURN(const Json* target, Find(ref, path));
  const auto text = ref.get<std::string>();
  auto [entry, is_new] =
      names_.try_emplace(text, "d" + std::to_string(names_.size()));
  const std::string& name = entry->second;
  if (is_new) {
    // A reference to a reference to itself would name nothing.
    std::set<std::string> seen = {text};
    const Json* next = target;
    while (next->is_object() && next->contains("$ref")) {
      const Json& further = (*next)["$ref"];
      if (!further.is_string() || !seen.insert(further).second) {
        return Error(path, "has a $ref that leads to itself");
      }
      ASSIGN_OR_RETURN(next, Find(further, path));
    }
    targets_.push_back({name, target, text.substr(1)});
  }
  return Json{{"$ref", "#/$defs/" + name}};
}

StatusOr<Json> Normaliser::Flat(const Json& schema, const std::string& path,
                                int depth) {
  RETURN_IF_ERROR(CountOne(path, depth));
  if (schema == true) return Json::object();
  if (!schema.is_object()) {
    return Error(path, schema == false ? "is false: no value fits"
                                       : "must be an object, true or false");
  }
  RETURN_IF_ERROR(CheckKeywords(schema, path));
  Json flat = schema;
  std::vector<Json> others;
  if (const auto ref = flat.find("$ref"); ref != flat.end()) {
    ASSIGN_OR_RETURN(const Json* target, Find(*ref, path));
    others.push_back(*target);
    flat.erase("$ref");
  }
  if (const auto all = flat.find("allOf"); all != flat.end()) {
    if (!all->is_array()) return Error(path, "must have an array as 'allOf'");
    for (const Json& member : *all) others.push_back(member);
    flat.erase("allOf");
  }
  for (const Json& other : others) {
    ASSIGN_OR_RETURN(const Json part, Flat(other, path, depth + 1));
    StatusOr<Json> merged = MergeSchemas(flat, part);
    if (!merged.ok()) {
      return Error(path,
                   "cannot be used: " + std::string(merged.status().message()));
    }
    flat = std::move(merged).value();
  }
  return flat;
}

// Values of `enum` and `const` that have the type; no other keyword may narrow
// them further.
StatusOr<Json> Normaliser::WriteValues(const Json& schema,
                                       const std::string& path) {
  Json values = Json::array();
  if (const auto found = schema.find("enum"); found != schema.end()) {
    if (!found->is_array()) return Error(path, "must have an array as 'enum'");
    values = *found;
    if (schema.contains("const")) {
      const Json& only = schema["const"];
      const bool there = std::ranges::any_of(
          values, [&](const Json& value) { return IsSameValue(value, only); });
      values = there ? Json::array({only}) : Json::array();
    }
  } else {
    values.push_back(schema["const"]);
  }
  num_values_ += static_cast<int>(std::min<size_t>(values.size(), 1 << 20));
  if (num_values_ > kMaxEnumValues) {
    return Error(path, "brings the values of all 'enum' to more than " +
                           std::to_string(kMaxEnumValues) +
                           ", which is the limit");
  }
  Json kept = Json::array();
  for (const Json& value : values) {
    if (schema.contains("type") &&
        CommonTypes(schema["type"], TypeOf(value)).empty()) {
      continue;
    }
    if (!IsExact(value)) {
      return Error(path, "has the number " + value.dump() +
                             " as a value, which is too large to be exact");
    }
    kept.push_back(value);
  }
  for (const auto& [keyword, unused] : schema.items()) {
    if (IsTypeKeyword(keyword)) {
      return Error(path, "has '" + keyword +
                             "' beside 'enum' or 'const', which is not "
                             "supported; leave out the values that do not fit");
    }
  }
  if (kept.empty()) return Error(path, "leaves no value: see its 'enum'");
  return Json{{"enum", std::move(kept)}};
}

StatusOr<Json> Normaliser::WriteBranches(const Json& schema,
                                         const char* keyword,
                                         const std::string& path, int depth) {
  const Json& branches = schema[keyword];
  if (!branches.is_array() || branches.empty()) {
    return Error(
        path, "must have a list of schemas as '" + std::string(keyword) + "'");
  }
  Json beside = Json::object();
  for (const auto& [name, value] : schema.items()) {
    if (name != keyword && !IsAnnotation(name)) beside[name] = value;
  }
  Json written = Json::array();
  Json raw = Json::array();
  for (size_t i = 0; i < branches.size(); ++i) {
    const std::string place = path + "/" + keyword + "/" + std::to_string(i);
    if (branches[i] == false) continue;
    if (beside.empty()) {
      raw.push_back(branches[i]);
      ASSIGN_OR_RETURN(Json branch, Write(branches[i], place, depth + 1));
      written.push_back(std::move(branch));
      continue;
    }
    Json both = {{"allOf", Json::array({beside, branches[i]})}};
    StatusOr<Json> branch = Write(both, place, depth + 1);
    RETURN_IF_ERROR(branch.status());
    raw.push_back(std::move(both));
    written.push_back(std::move(branch).value());
  }
  if (written.empty()) return Error(path, "leaves no value");
  if (std::string_view(keyword) == "oneOf") {
    RETURN_IF_ERROR(CheckDisjoint(raw, path, depth));
  }
  return Json{{"anyOf", std::move(written)}};
}

Status Normaliser::FlattenRequired(Json& schema, const std::string& path,
                                   int depth) {
  const auto properties = schema.find("properties");
  const auto required = schema.find("required");
  if (properties == schema.end() || !properties->is_object() ||
      required == schema.end() || !required->is_array()) {
    return OkStatus();
  }
  for (const Json& name : *required) {
    if (!name.is_string()) continue;
    const auto rule = properties->find(name.get_ref<const std::string&>());
    if (rule == properties->end()) continue;
    ASSIGN_OR_RETURN(*rule, Flat(*rule, path, depth + 1));
  }
  return OkStatus();
}

Status Normaliser::CheckDisjoint(const Json& branches, const std::string& path,
                                 int depth) {
  std::vector<Json> flat;
  for (const Json& branch : branches) {
    ASSIGN_OR_RETURN(Json one, Flat(branch, path, depth + 1));
    RETURN_IF_ERROR(FlattenRequired(one, path, depth));
    flat.push_back(std::move(one));
  }
  for (size_t i = 0; i < flat.size(); ++i) {
    for (size_t k = i + 1; k < flat.size(); ++k) {
      if (AreDisjoint(flat[i], flat[k])) continue;
      return Error(path, "has a 'oneOf' whose branches " + std::to_string(i) +
                             " and " + std::to_string(k) +
                             " may both fit a value; use 'anyOf', or give them "
                             "a required property with different constants");
    }
  }
  return OkStatus();
}

StatusOr<Json> Normaliser::Write(const Json& schema, const std::string& path,
                                 int depth) {
  RETURN_IF_ERROR(CountOne(path, depth));
  if (schema.is_object() && schema.contains("$ref") &&
      std::ranges::none_of(schema.items(), [](const auto& item) {
        return item.key() != "$ref" && !IsAnnotation(item.key());
      })) {
    return WriteRef(schema["$ref"], path);
  }
  ASSIGN_OR_RETURN(const Json flat, Flat(schema, path, depth));
  const bool any = flat.contains("anyOf");
  if (any && flat.contains("oneOf")) {
    return Error(path, "has 'anyOf' beside 'oneOf', which is not supported");
  }
  if (any) return WriteBranches(flat, "anyOf", path, depth);
  if (flat.contains("oneOf")) return WriteBranches(flat, "oneOf", path, depth);
  if (flat.contains("enum") || flat.contains("const")) {
    return WriteValues(flat, path);
  }
  return WriteTypes(flat, path, depth, *this);
}

}  // namespace

StatusOr<std::string> NormalSchema(std::string_view text) {
  ASSIGN_OR_RETURN(const Json schema, ParseJson(text));
  ASSIGN_OR_RETURN(const Json normal, Normaliser(schema).Root());
  return DumpJson(normal);
}

}  // namespace millrace::models
