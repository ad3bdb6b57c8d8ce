// Whether two branches of oneOf exclude each other. Only what is easy to see
// counts: types, listed values, a required property with different constants,
// and a property that one requires and the other never writes.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "models/grammar/schema_merge.h"
#include "models/grammar/schema_types.h"

namespace millrace::models {
namespace {

using Json = nlohmann::ordered_json;

const Json* Find(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

// The values a schema lists, or nothing.
Json Listed(const Json& schema) {
  if (const Json* one = Find(schema, "const")) return Json::array({*one});
  const Json* list = Find(schema, "enum");
  return list != nullptr && list->is_array() ? *list : Json();
}

Json TypesOf(const Json& schema) {
  if (const Json* types = Find(schema, "type")) return *types;
  const Json listed = Listed(schema);
  if (listed.is_array()) {
    Json types = Json::array();
    for (const Json& value : listed) types.push_back(TypeOf(value));
    return types;
  }
  const bool is_object = Find(schema, "properties") != nullptr ||
                         Find(schema, "required") != nullptr;
  return is_object ? Json("object") : Json();
}

bool ListsDiffer(const Json& a, const Json& b) {
  const Json left = Listed(a), right = Listed(b);
  if (!left.is_array() || !right.is_array()) return false;
  return std::ranges::none_of(left, [&](const Json& value) {
    return std::ranges::any_of(
        right, [&](const Json& other) { return IsSameValue(value, other); });
  });
}

bool Requires(const Json& schema, const std::string& name) {
  const Json* required = Find(schema, "required");
  return required != nullptr && required->is_array() &&
         std::ranges::find(*required, Json(name)) != required->end();
}

// Null: it is not named, or false, so that it is never written.
const Json* Property(const Json& schema, const std::string& name) {
  const Json* properties = Find(schema, "properties");
  if (properties == nullptr) return nullptr;
  const Json* rule = Find(*properties, name.c_str());
  return rule == nullptr || *rule == false ? nullptr : rule;
}

// No value written for `a` fits `b`, because of a property's name.
bool NamesExclude(const Json& a, const Json& b) {
  const Json* open = Find(a, "additionalProperties");
  const bool a_is_closed = !a.contains("patternProperties") &&
                           Find(a, "properties") != nullptr &&
                           (open == nullptr || *open == false);
  if (const Json* wanted = Find(b, "required");
      a_is_closed && wanted != nullptr && wanted->is_array()) {
    for (const Json& name : *wanted) {
      if (name.is_string() && Property(a, name) == nullptr &&
          !Requires(a, name)) {
        return true;
      }
    }
  }
  const Json* forbids = Find(b, "additionalProperties");
  const Json* given = Find(a, "required");
  if (forbids == nullptr || *forbids != false || given == nullptr ||
      !given->is_array() || b.contains("patternProperties")) {
    return false;
  }
  return std::ranges::any_of(*given, [&](const Json& name) {
    return name.is_string() && Property(b, name) == nullptr;
  });
}

}  // namespace

bool AreDisjoint(const Json& a, const Json& b) {
  const Json a_types = TypesOf(a), b_types = TypesOf(b);
  if (a_types.is_null() || b_types.is_null()) return false;
  if (CommonTypes(a_types, b_types).empty()) return true;
  if (ListsDiffer(a, b)) return true;
  if (a_types != "object" || b_types != "object") return false;
  if (const Json* properties = Find(a, "properties")) {
    for (const auto& [name, rule] : properties->items()) {
      const Json* other = Property(b, name);
      if (other == nullptr || !Requires(a, name) || !Requires(b, name)) {
        continue;
      }
      if (ListsDiffer(rule, *other)) return true;
    }
  }
  return NamesExclude(a, b) && NamesExclude(b, a);
}

}  // namespace millrace::models
