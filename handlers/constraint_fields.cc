// One table of names for the fields of vLLM, llama.cpp and SGLang, one reader
// for response_format, whose shape is its own.
#include "handlers/constraint_fields.h"

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>

#include "config/base/json.h"
#include "handlers/json_fields.h"

namespace millrace::handlers {
namespace {

using Json = nlohmann::ordered_json;
using models::ConstraintKind;
using models::OutputConstraint;

struct NamedKind {
  const char* name;
  ConstraintKind kind;
};
constexpr NamedKind kStructuredOutputs[] = {
    {"json", ConstraintKind::kJsonSchema},
    {"regex", ConstraintKind::kRegex},
    {"choice", ConstraintKind::kChoice},
    {"grammar", ConstraintKind::kGrammar},
    {"json_object", ConstraintKind::kJsonObject},
    {"structural_tag", ConstraintKind::kStructuralTag},
};
constexpr NamedKind kFields[] = {
    {"guided_json", ConstraintKind::kJsonSchema},
    {"guided_regex", ConstraintKind::kRegex},
    {"guided_choice", ConstraintKind::kChoice},
    {"guided_grammar", ConstraintKind::kGrammar},
    {"json_schema", ConstraintKind::kJsonSchema},
    {"grammar", ConstraintKind::kGrammar},
    {"regex", ConstraintKind::kRegex},   // SGLang
    {"ebnf", ConstraintKind::kGrammar},  // SGLang
};
// Of vLLM, that change how a constraint is compiled: only without effect.
constexpr const char* kBackendOptions[] = {
    "disable_fallback", "disable_any_whitespace",
    "disable_additional_properties", "whitespace_pattern",
    "guided_whitespace_pattern"};

bool AsksForNothing(const Json& value) {
  return value == false ||
         (value.is_string() && value.get_ref<const std::string&>().empty()) ||
         (value.is_array() && value.empty());
}

// The value of a field as the text of a constraint.
StatusOr<OutputConstraint> Constraint(ConstraintKind kind,
                                      const std::string& field,
                                      const Json& value) {
  OutputConstraint constraint = {.kind = kind, .field = field};
  switch (kind) {
    case ConstraintKind::kNone:
      break;
    case ConstraintKind::kJsonObject:
      if (!value.is_boolean()) return WrongType(field, "true or false", value);
      break;
    case ConstraintKind::kJsonSchema:
    case ConstraintKind::kStructuralTag:
      if (!value.is_object() && !value.is_string() && !value.is_boolean()) {
        return WrongType(field, "an object, or its text", value);
      }
      constraint.text =
          value.is_string() ? value.get<std::string>() : DumpJson(value);
      break;
    case ConstraintKind::kRegex:
    case ConstraintKind::kGrammar: {
      ASSIGN_OR_RETURN(constraint.text, AsString(value, field));
      break;
    }
    case ConstraintKind::kChoice:
      if (!value.is_array()) {
        return WrongType(field, "an array of strings", value);
      }
      constraint.text = DumpJson(value);
      break;
  }
  return constraint;
}

StatusOr<OutputConstraint> ReadResponseFormat(const Json& format) {
  if (!format.is_object()) {
    return WrongType("response_format", "an object", format);
  }
  ASSIGN_OR_RETURN(const auto type, ReadString(format, "type"));
  if (!type) {
    return InvalidArgument(
               "response_format has no type; it may be \"text\", "
               "\"json_object\" or \"json_schema\"")
        .At("response_format.type");
  }
  if (*type == "text") return OutputConstraint{};
  // llama.cpp takes a schema here.
  if (const Json* schema = FindField(format, "schema");
      *type == "json_object" && schema != nullptr) {
    return Constraint(ConstraintKind::kJsonSchema, "response_format.schema",
                      *schema);
  }
  if (*type == "json_object") {
    return OutputConstraint{.kind = ConstraintKind::kJsonObject,
                            .field = "response_format"};
  }
  if (*type == "structural_tag") {
    return Constraint(ConstraintKind::kStructuralTag, "response_format",
                      format);
  }
  if (*type != "json_schema") {
    return InvalidArgument("response_format.type is " + Shown(Json(*type)) +
                           " but may be \"text\", \"json_object\", "
                           "\"json_schema\" or \"structural_tag\"")
        .At("response_format.type");
  }
  ASSIGN_OR_RETURN(const Json* named, ReadObject(format, "json_schema"));
  // llama.cpp and others have the schema at this place.
  const Json* schema = FindField(named != nullptr ? *named : format, "schema");
  if (schema == nullptr) {
    return InvalidArgument(
               "response_format.json_schema has no schema; send "
               "{\"type\": \"json_schema\", \"json_schema\": {\"name\": …, "
               "\"schema\": {…}}}")
        .At("response_format.json_schema");
  }
  return Constraint(ConstraintKind::kJsonSchema,
                    "response_format.json_schema.schema", *schema);
}

// Keeps the constraint that asks for something; a second one is an error.
Status Keep(OutputConstraint found, OutputConstraint& kept) {
  if (!found) return OkStatus();
  if (kept) {
    return InvalidArgument(kept.field + " and " + found.field +
                           " cannot be used together; leave one of them out")
        .At(found.field);
  }
  kept = std::move(found);
  return OkStatus();
}

Status ReadNamed(const Json& object, const std::string& prefix,
                 std::span<const NamedKind> names, OutputConstraint& kept) {
  for (const NamedKind& name : names) {
    const Json* value = FindField(object, name.name);
    if (value == nullptr || AsksForNothing(*value)) continue;
    ASSIGN_OR_RETURN(OutputConstraint found,
                     Constraint(name.kind, prefix + name.name, *value));
    RETURN_IF_ERROR(Keep(std::move(found), kept));
  }
  return OkStatus();
}

Status CheckBackendOptions(const Json& object, const std::string& prefix) {
  for (const char* name : kBackendOptions) {
    const Json* value = FindField(object, name);
    if (value == nullptr || AsksForNothing(*value)) continue;
    return InvalidArgument(prefix + name + " is " + Shown(*value) +
                           " but is not supported; leave it out")
        .At(prefix + name)
        .Because("unsupported_parameter");
  }
  return OkStatus();
}

}  // namespace

StatusOr<OutputConstraint> ReadConstraint(const Json& body) {
  OutputConstraint kept;
  if (const Json* format = FindField(body, "response_format")) {
    ASSIGN_OR_RETURN(kept, ReadResponseFormat(*format));
  }
  for (const char* field : {"structured_outputs", "guided_decoding"}) {
    ASSIGN_OR_RETURN(const Json* outputs, ReadObject(body, field));
    if (outputs == nullptr) continue;
    const std::string prefix = std::string(field) + ".";
    RETURN_IF_ERROR(CheckBackendOptions(*outputs, prefix));
    RETURN_IF_ERROR(ReadNamed(*outputs, prefix, kStructuredOutputs, kept));
  }
  RETURN_IF_ERROR(CheckBackendOptions(body, ""));
  RETURN_IF_ERROR(ReadNamed(body, "", kFields, kept));
  return kept;
}

}  // namespace millrace::handlers
