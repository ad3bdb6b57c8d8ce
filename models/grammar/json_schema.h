// A JSON Schema in a form that xgrammar honours to the letter, or a sentence
// that names the keyword that it would not honour.
//
//   ASSIGN_OR_RETURN(std::string schema, NormalSchema(R"({"allOf": [...]})"));
//
// Every value that the result takes is valid for the schema; it takes fewer:
// properties come in the order of the schema, and those that are not named only
// where `additionalProperties` asks for them. Members of allOf are merged,
// keywords beside anyOf move into its branches, oneOf becomes anyOf where no
// value can fit two branches, a reference keeps its target in `$defs`.
//
// Source: JSON Schema 2020-12, with `definitions` and `items` as drafts 4 to 7
// spell them. Pure functions.
#pragma once

#include <string>
#include <string_view>

#include "config/base/status.h"

namespace millrace::models {

// Limits of a schema. Merging may still copy much: a schema that is not trusted
// is read in a child process (compile_child.h).
inline constexpr int kMaxSchemaDepth = 48;
inline constexpr int kMaxSubschemas = 4000;
inline constexpr int kMaxEnumValues = 4000;

// INVALID_ARGUMENT, without a field.
StatusOr<std::string> NormalSchema(std::string_view text);

}  // namespace millrace::models
