// What the library is known to take for something else is translated or refused
// here; what it refuses itself, it refuses in the child.
#include "models/grammar/grammar_source.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "config/base/json.h"
#include "config/base/utf8.h"
#include "models/grammar/gbnf.h"
#include "models/grammar/json_schema.h"
#include "models/grammar/lark.h"
#include "models/grammar/literal_grammar.h"
#include "models/grammar/pattern.h"

namespace millrace::models {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxChoices = 4000;

StatusOr<GrammarSource> OfChoices(const std::string& text) {
  ASSIGN_OR_RETURN(const Json list, ParseJson(text));
  if (!list.is_array() || list.empty() || list.size() > kMaxChoices) {
    return InvalidArgument("a choice must be a list of 1 to " +
                           std::to_string(kMaxChoices) + " strings");
  }
  std::vector<std::string> choices;
  for (const Json& choice : list) {
    if (!choice.is_string()) {
      return InvalidArgument("a choice must be a list of strings, but one is " +
                             choice.dump());
    }
    choices.push_back(choice.get<std::string>());
  }
  return GrammarSource{GrammarSource::Kind::kEbnf, EbnfOfChoices(choices)};
}

// Lark has no "::=". As vLLM tells them apart.
StatusOr<GrammarSource> OfGrammar(const std::string& text) {
  if (text.find("::=") == text.npos) {
    RETURN_IF_ERROR(CheckLark(text));
    return GrammarSource{GrammarSource::Kind::kLark, text};
  }
  ASSIGN_OR_RETURN(std::string ebnf, EbnfOfGbnf(text));
  return GrammarSource{GrammarSource::Kind::kEbnf, std::move(ebnf)};
}

// {"type": "json_schema", "json_schema": {...}, "notation": "pythonic"}: the
// arguments of a call, which are not written as JSON.
StatusOr<Json> FromNotation(const Json& content) {
  const Json& notation = content["notation"];
  if (!notation.is_string() ||
      !IsNotation(notation.get_ref<const std::string&>())) {
    return InvalidArgument("there is no notation " + notation.dump());
  }
  ASSIGN_OR_RETURN(
      const std::string schema,
      NormalSchema(content.value("json_schema", Json(true)).dump()));
  ASSIGN_OR_RETURN(std::string ebnf,
                   ArgumentsEbnf(schema, notation.get<std::string>()));
  return Json{{"type", "grammar"}, {"grammar", std::move(ebnf)}};
}

// Schemas, patterns and grammars inside are held to the same rules as alone.
Status NormaliseSchemas(Json& value, int depth) {
  if (depth > kMaxSchemaDepth) {
    return InvalidArgument("the structural tag is nested deeper than " +
                           std::to_string(kMaxSchemaDepth) + " levels");
  }
  if (value.is_array()) {
    for (Json& item : value) RETURN_IF_ERROR(NormaliseSchemas(item, depth + 1));
  }
  if (!value.is_object()) return OkStatus();
  if (value.contains("notation")) {
    ASSIGN_OR_RETURN(value, FromNotation(value));
    return OkStatus();
  }
  for (auto& [key, item] : value.items()) {
    if (key == "json_schema" || key == "schema") {
      ASSIGN_OR_RETURN(const std::string schema, NormalSchema(item.dump()));
      ASSIGN_OR_RETURN(item, ParseJson(schema));
    } else if (key == "pattern" && item.is_string()) {
      RETURN_IF_ERROR(CheckRegex(item.get_ref<const std::string&>()));
    } else if (key == "grammar" && item.is_string()) {
      ASSIGN_OR_RETURN(GrammarSource grammar,
                       OfGrammar(item.get_ref<const std::string&>()));
      item = std::move(grammar.text);
    } else {
      RETURN_IF_ERROR(NormaliseSchemas(item, depth + 1));
    }
  }
  return OkStatus();
}

// The older shape of vLLM and xgrammar, its tags and triggers beside the type.
StatusOr<Json> FromStructures(const Json& tag) {
  Json tags = Json::array();
  for (const Json& structure : tag["structures"]) {
    if (!structure.is_object() || !structure.contains("begin") ||
        !structure.contains("end")) {
      return InvalidArgument(
          "each of the structural tag's structures must be an object with "
          "begin, schema and end");
    }
    tags.push_back({{"type", "tag"},
                    {"begin", structure["begin"]},
                    {"content",
                     {{"type", "json_schema"},
                      {"json_schema", structure.value("schema", Json(true))}}},
                    {"end", structure["end"]}});
  }
  return Json{{"type", "structural_tag"},
              {"format",
               {{"type", "triggered_tags"},
                {"triggers", tag.value("triggers", Json::array())},
                {"tags", std::move(tags)}}}};
}

StatusOr<GrammarSource> OfTag(const std::string& text) {
  ASSIGN_OR_RETURN(Json tag, ParseJson(text));
  if (!tag.is_object()) {
    return InvalidArgument("a structural tag must be a JSON object");
  }
  if (tag.contains("structures") && tag["structures"].is_array()) {
    ASSIGN_OR_RETURN(tag, FromStructures(tag));
  }
  RETURN_IF_ERROR(NormaliseSchemas(tag, 0));
  return GrammarSource{GrammarSource::Kind::kStructuralTag, tag.dump()};
}

}  // namespace

StatusOr<GrammarSource> SourceOf(const OutputConstraint& constraint) {
  const std::string& text = constraint.text;
  if (text.size() > kMaxConstraintBytes) {
    return InvalidArgument("it has " + std::to_string(text.size()) +
                           " bytes but may have at most " +
                           std::to_string(kMaxConstraintBytes));
  }
  if (!IsValidUtf8(text)) return InvalidArgument("it is not valid UTF-8");
  if (text.find('\0') != text.npos) {
    return InvalidArgument("it holds a byte of value zero");
  }
  switch (constraint.kind) {
    case ConstraintKind::kNone:
      break;
    case ConstraintKind::kJsonObject:
    case ConstraintKind::kJsonSchema: {
      ASSIGN_OR_RETURN(
          std::string schema,
          NormalSchema(constraint.kind == ConstraintKind::kJsonObject
                           ? R"({"type": "object"})"
                           : text));
      return GrammarSource{GrammarSource::Kind::kJsonSchema, std::move(schema)};
    }
    case ConstraintKind::kRegex:
      RETURN_IF_ERROR(CheckRegex(text));
      return GrammarSource{GrammarSource::Kind::kRegex, text};
    case ConstraintKind::kChoice:
      return OfChoices(text);
    case ConstraintKind::kGrammar:
      return OfGrammar(text);
    case ConstraintKind::kStructuralTag:
      return OfTag(text);
  }
  return InvalidArgument("there is no such kind of constraint");
}

}  // namespace millrace::models
