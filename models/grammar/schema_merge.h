// Two JSON Schemas as one that takes what both take; for allOf, and for
// keywords beside anyOf. Pure functions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "config/base/status.h"

namespace millrace::models {

// Keywords that say nothing about which values fit.
bool IsAnnotation(std::string_view keyword);

// Equal as values of JSON: the order of names does not count.
bool IsSameValue(const nlohmann::ordered_json& a,
                 const nlohmann::ordered_json& b);

// Both are objects without $ref. INVALID_ARGUMENT names a keyword that stands
// in both and cannot be joined (two patterns, say), or that leaves no value.
StatusOr<nlohmann::ordered_json> MergeSchemas(const nlohmann::ordered_json& a,
                                              const nlohmann::ordered_json& b);

// The types that `types`, a name or a list of names, and `others` have in
// common, as a list; "integer" is a part of "number".
nlohmann::ordered_json CommonTypes(const nlohmann::ordered_json& types,
                                   const nlohmann::ordered_json& others);

}  // namespace millrace::models
