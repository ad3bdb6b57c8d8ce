// One tool: its schema is the constraint. Several: a structural tag of xgrammar
// with one branch for each tool, in which a schema stands as it was sent, so
// that its references keep their targets.
#include "handlers/call_constraint.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "config/base/json.h"
#include "handlers/json_fields.h"
#include "handlers/tool_prompt.h"
#include "models/grammar/json_schema.h"

namespace millrace::handlers {
namespace {

using Json = nlohmann::ordered_json;
using models::ConstraintKind;

// White space between two tokens of JSON, so that no completion is spent on it.
constexpr int kMaxWhiteSpace = 16;

std::string PlaceOf(size_t tool) {
  return "tools[" + std::to_string(tool) + "].function.parameters";
}

// Arguments are an object, also where the schema does not say so. A function
// without `parameters` takes none.
Json SchemaOf(const Json& tool) {
  const Json* given = FindField(tool["function"], "parameters");
  if (given == nullptr) {
    return {{"type", "object"},
            {"properties", Json::object()},
            {"additionalProperties", false}};
  }
  Json schema = *given;
  schema["type"] = "object";  // ReadTools refuses a type that excludes it
  return schema;
}

}  // namespace

models::OutputConstraint CallConstraint(const OutputFormats& formats,
                                        const ChatPrompt& chat) {
  const ToolChoice& choice = chat.tool_choice;
  const ToolFormat* format = formats.tools;
  if (choice.mode != ToolChoice::Mode::kRequired || chat.tools == nullptr ||
      format == nullptr || !format->json_arguments) {
    return {};
  }
  const Json& tools = *chat.tools;
  if (const std::string& only = OnlyName(choice); !only.empty()) {
    for (size_t i = 0; i < tools.size(); ++i) {
      if (tools[i]["function"]["name"] != only) continue;
      return {.kind = ConstraintKind::kJsonSchema,
              .text = DumpJson(SchemaOf(tools[i])),
              .field = PlaceOf(i)};
    }
    return {};
  }
  Json calls = Json::array();
  for (const Json& tool : tools) {
    const auto name = tool["function"]["name"].get<std::string>();
    const Json head = {{"type", "const_string"},
                       {"value", name + std::string(format->behind_name)}};
    const Json arguments = {{"type", "json_schema"},
                            {"json_schema", SchemaOf(tool)},
                            {"max_whitespace_cnt", kMaxWhiteSpace}};
    calls.push_back(
        {{"type", "sequence"}, {"elements", Json::array({head, arguments})}});
  }
  const Json any = {{"type", "or"}, {"elements", std::move(calls)}};
  return {.kind = ConstraintKind::kStructuralTag,
          .text = DumpJson(Json{{"type", "structural_tag"}, {"format", any}}),
          .field = "tools"};
}

Status AtTool(const ChatPrompt& chat, const Status& refusal) {
  if (refusal.code() != StatusCode::kInvalidArgument) return refusal;
  const std::string& only = OnlyName(chat.tool_choice);
  for (size_t i = 0; i < chat.tools->size(); ++i) {
    const Json& tool = (*chat.tools)[i];
    if (!only.empty() && tool["function"]["name"] != only) continue;
    const auto schema = models::NormalSchema(DumpJson(SchemaOf(tool)));
    if (schema.ok()) continue;
    return schema.status().Prefixed(PlaceOf(i)).At(PlaceOf(i));
  }
  return refusal;
}

}  // namespace millrace::handlers
