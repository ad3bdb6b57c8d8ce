// Structural tags of xgrammar, in which a schema stands as it was sent, so that
// its references keep their targets. A call of the one tool that may be called
// is its schema alone.
#include "handlers/call_constraint.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "config/base/json.h"
#include "handlers/json_fields.h"
#include "handlers/tool_prompt.h"
#include "models/grammar/json_schema.h"
#include "models/grammar/literal_grammar.h"

namespace millrace::handlers {
namespace {

using Json = nlohmann::ordered_json;
using models::ConstraintKind;

// White space between two tokens of JSON, so that no completion is spent on it.
constexpr int kMaxWhiteSpace = 16;

std::string FieldOf(size_t tool) {
  return "tools[" + std::to_string(tool) + "].function.parameters";
}

// Of the tool with this name, which is there.
size_t PlaceOf(const Json& tools, const std::string& name) {
  size_t i = 0;
  while (i < tools.size() && tools[i]["function"]["name"] != name) ++i;
  CHECK(i < tools.size(), "tool_choice names one of the tools");
  return i;
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

Json Text(std::string value) {
  return {{"type", "const_string"}, {"value", std::move(value)}};
}

Json ArgumentsOf(const ToolFormat& format, const Json& tool) {
  Json content = {{"type", "json_schema"}, {"json_schema", SchemaOf(tool)}};
  if (format.notation.empty()) {
    content["max_whitespace_cnt"] = kMaxWhiteSpace;
  } else {
    content["notation"] = format.notation;
  }
  return content;
}

// A call of this tool, with `before` before its name.
Json CallTag(const ToolFormat& format, const Json& tool,
             std::string_view before) {
  std::string begin(before);
  begin.append(tool["function"]["name"].get_ref<const std::string&>())
      .append(format.behind_name);
  return {{"type", "tag"},
          {"begin", std::move(begin)},
          {"content", ArgumentsOf(format, tool)},
          {"end", format.behind_arguments}};
}

Json CallTags(const ToolFormat& format, const Json& tools,
              std::string_view before) {
  Json tags = Json::array();
  for (const Json& tool : tools) tags.push_back(CallTag(format, tool, before));
  return tags;
}

// One call, its name first; several where the format has a text between them.
Json CallsFromName(const ToolFormat& format, const Json& tools, bool several) {
  return {{"type", "tags_with_separator"},
          {"tags", CallTags(format, tools, "")},
          {"separator", format.between_calls},
          {"at_least_one", true},
          {"stop_after_first", !several || format.between_calls.empty()}};
}

// The arguments of a call whose name is written, and other calls if there may
// be any.
Json CallsFromArguments(const ToolFormat& format, const Json& tool,
                        const Json& tools, bool several) {
  Json elements = Json::array(
      {ArgumentsOf(format, tool), Text(std::string(format.behind_arguments))});
  if (several) {
    elements.push_back({{"type", "tags_with_separator"},
                        {"tags", CallTags(format, tools, format.between_calls)},
                        {"separator", ""},
                        {"at_least_one", false},
                        {"stop_after_first", false}});
  }
  return {{"type", "sequence"}, {"elements", std::move(elements)}};
}

// Any text with calls in it.
Json CallsInText(const ToolFormat& format, const Json& tools, bool several) {
  Json tags = CallTags(format, tools, format.before_name);
  if (!format.behind_calls.empty()) {
    tags = Json::array({{{"type", "tag"},
                         {"begin", format.before_name},
                         {"content", CallsFromName(format, tools, several)},
                         {"end", format.behind_calls}}});
  }
  return {{"type", "triggered_tags"},
          {"triggers", Json::array({format.trigger})},
          {"tags", std::move(tags)},
          {"at_least_one", false},
          {"stop_after_first", !several}};
}

models::OutputConstraint TagOf(Json format) {
  return {.kind = ConstraintKind::kStructuralTag,
          .text = DumpJson(
              Json{{"type", "structural_tag"}, {"format", std::move(format)}}),
          .field = "tools"};
}

// ... and what ends all of them.
models::OutputConstraint WithEnd(const ToolFormat& format, Json calls) {
  if (format.behind_calls.empty()) return TagOf(std::move(calls));
  return TagOf(
      {{"type", "sequence"},
       {"elements", Json::array({std::move(calls),
                                 Text(std::string(format.behind_calls))})}});
}

}  // namespace

models::OutputConstraint CallConstraint(const OutputFormats& formats,
                                        const ChatPrompt& chat) {
  const ToolChoice& choice = chat.tool_choice;
  const ToolFormat* format = formats.tools;
  if (choice.mode == ToolChoice::Mode::kNone || chat.tools == nullptr ||
      chat.tools->empty() || format == nullptr) {
    return {};
  }
  const Json& tools = *chat.tools;
  if (choice.mode == ToolChoice::Mode::kAuto) {
    if (format->trigger.empty()) return {};
    return TagOf(CallsInText(*format, tools, choice.parallel));
  }
  const std::string& only = OnlyName(choice);
  if (only.empty()) {
    return WithEnd(*format, CallsFromName(*format, tools, choice.parallel));
  }
  const size_t i = PlaceOf(tools, only);
  // A named function is called once.
  const bool several =
      choice.name.empty() && choice.parallel && !format->between_calls.empty();
  // A call in JSON is read without what ends it.
  if (!several && format->notation.empty()) {
    return {.kind = ConstraintKind::kJsonSchema,
            .text = DumpJson(SchemaOf(tools[i])),
            .field = FieldOf(i)};
  }
  return WithEnd(*format,
                 CallsFromArguments(*format, tools[i], tools, several));
}

bool MayRunFreely(const ChatPrompt& chat) {
  if (chat.tool_choice.mode != ToolChoice::Mode::kAuto) return false;
  return std::ranges::none_of(*chat.tools, [](const Json& tool) {
    const Json* strict = FindField(tool["function"], "strict");
    return strict != nullptr && *strict == true;
  });
}

Status AtTool(const OutputFormats& formats, const ChatPrompt& chat,
              const Status& refusal) {
  if (refusal.code() != StatusCode::kInvalidArgument) return refusal;
  const std::string& only = OnlyName(chat.tool_choice);
  for (size_t i = 0; i < chat.tools->size(); ++i) {
    const Json& tool = (*chat.tools)[i];
    if (!only.empty() && tool["function"]["name"] != only) continue;
    // Nothing limits time and memory here, as the compiler's process does: what
    // is large is not read again.
    constexpr size_t kMostReadAgainBytes = 8 << 10;
    const std::string text = DumpJson(SchemaOf(tool));
    if (text.size() > kMostReadAgainBytes) continue;
    auto checked = models::NormalSchema(text);
    if (checked.ok() && !formats.tools->notation.empty()) {
      checked = models::ArgumentsEbnf(*checked, formats.tools->notation);
    }
    if (checked.ok()) continue;
    return checked.status().Prefixed(FieldOf(i)).At(FieldOf(i));
  }
  return refusal;
}

}  // namespace millrace::handlers
