// A completion that must be a call gets the beginning of one as the end of its
// prompt: the model goes on from there, and the parser reads both. With one
// tool, its name stands in the beginning.
#include "handlers/tool_prompt.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "config/base/json.h"
#include "handlers/json_fields.h"

namespace millrace::handlers {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxTools = 1024;
constexpr size_t kMaxNameBytes = 128;

bool IsName(const std::string& name) {
  return !name.empty() && name.size() <= kMaxNameBytes &&
         std::ranges::all_of(name, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
         });
}

StatusOr<std::string> ReadTool(const Json& tool, const std::string& path) {
  if (!tool.is_object()) return WrongType(path, "an object", tool);
  const Json* type = FindField(tool, "type");
  if (type == nullptr || *type != "function") {
    return InvalidArgument(path + ".type is " +
                           (type == nullptr ? "missing" : Shown(*type)) +
                           " but must be \"function\"; the server runs no "
                           "tools of its own")
        .At(path + ".type");
  }
  const Json* function = FindField(tool, "function");
  if (function == nullptr || !function->is_object()) {
    return InvalidArgument(path +
                           ".function is missing; it is {\"name\": ..., "
                           "\"parameters\": {...}}")
        .At(path + ".function");
  }
  const std::string name_path = path + ".function.name";
  const Json* name = FindField(*function, "name");
  if (name == nullptr) {
    return InvalidArgument(name_path + " is missing").At(name_path);
  }
  ASSIGN_OR_RETURN(std::string text, AsString(*name, name_path));
  if (!IsName(text)) {
    return InvalidArgument(name_path + " is " + Shown(*name) +
                           " but must be 1 to " +
                           std::to_string(kMaxNameBytes) +
                           " letters, digits, '_', '-' or '.'")
        .At(name_path);
  }
  if (const Json* strict = FindField(*function, "strict");
      strict != nullptr && !strict->is_boolean()) {
    return WrongType(path + ".function.strict", "true or false", *strict);
  }
  const Json* parameters = FindField(*function, "parameters");
  if (parameters != nullptr && !parameters->is_object()) {
    return WrongType(path + ".function.parameters", "an object (JSON Schema)",
                     *parameters);
  }
  const Json* kind =
      parameters == nullptr ? nullptr : FindField(*parameters, "type");
  const bool is_object =
      kind == nullptr || *kind == "object" ||
      (kind->is_array() && std::ranges::find(*kind, "object") != kind->end());
  if (!is_object) {
    const std::string type_path = path + ".function.parameters.type";
    return InvalidArgument(type_path + " is " + Shown(*kind) +
                           " but must be \"object\": arguments are an object")
        .At(type_path);
  }
  return text;
}

// The name of a tool as a choice writes it: OpenAI's chats have it within
// `function`, its Responses beside `type`. Null: there is none.
const Json* NameIn(const Json& tool) {
  const Json* function = FindField(tool, "function");
  const Json* name = FindField(function == nullptr ? tool : *function, "name");
  return name != nullptr && name->is_string() ? name : nullptr;
}

// {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [...]}}:
// the request has these tools and no others. Responses have mode and tools
// beside the type.
Status ReadAllowedTools(const Json& value, ToolChoice& choice) {
  const std::string at = "tool_choice.allowed_tools";
  ASSIGN_OR_RETURN(const Json* nested, ReadObject(value, "allowed_tools"));
  const Json& allowed = nested == nullptr ? value : *nested;
  const Json* mode = FindField(allowed, "mode");
  if (mode == nullptr || (*mode != "auto" && *mode != "required")) {
    return InvalidArgument(at + ".mode is " +
                           (mode == nullptr ? "missing" : Shown(*mode)) +
                           " but must be \"auto\" or \"required\"")
        .At(at + ".mode");
  }
  if (*mode == "required") choice.mode = ToolChoice::Mode::kRequired;
  const Json* tools = FindField(allowed, "tools");
  if (tools == nullptr || !tools->is_array() || tools->empty()) {
    return InvalidArgument(at + ".tools must be an array of one tool or more")
        .At(at + ".tools");
  }
  if (tools->size() > kMaxTools) {
    return InvalidArgument(at + ".tools has " + std::to_string(tools->size()) +
                           " tools but may have at most " +
                           std::to_string(kMaxTools))
        .At(at + ".tools");
  }
  std::vector<std::string> names;
  for (const Json& tool : *tools) {
    const Json* name = NameIn(tool);
    if (name == nullptr ||
        std::ranges::count(choice.names, name->get<std::string>()) == 0) {
      return InvalidArgument(at + ".tools has " + Shown(tool) +
                             " but tools has no such function")
          .At(at + ".tools");
    }
    names.push_back(name->get<std::string>());
  }
  std::erase_if(choice.names, [&](const std::string& name) {
    return std::ranges::count(names, name) == 0;
  });
  return OkStatus();
}

Status ReadChoice(const Json& body, ToolChoice& choice) {
  const Json* value = FindField(body, "tool_choice");
  if (value == nullptr || *value == "auto") return OkStatus();
  if (*value == "none") {
    choice.mode = ToolChoice::Mode::kNone;
    return OkStatus();
  }
  if (choice.names.empty()) {
    return InvalidArgument("tool_choice is " + Shown(*value) +
                           " but the request has no tools; send tools or "
                           "leave tool_choice out")
        .At("tool_choice");
  }
  if (*value == "required") {
    choice.mode = ToolChoice::Mode::kRequired;
    return OkStatus();
  }
  if (const Json* type = FindField(*value, "type");
      type != nullptr && *type == "allowed_tools") {
    return ReadAllowedTools(*value, choice);
  }
  const Json* function = FindField(*value, "function");
  const Json* name =
      function == nullptr ? nullptr : FindField(*function, "name");
  if (name == nullptr || !name->is_string()) {
    return InvalidArgument(
               "tool_choice is " + Shown(*value) +
               " but must be \"auto\", \"none\", \"required\" or {\"type\": "
               "\"function\", \"function\": {\"name\": ...}}")
        .At("tool_choice");
  }
  choice.mode = ToolChoice::Mode::kRequired;
  choice.name = name->get<std::string>();
  if (std::ranges::find(choice.names, choice.name) == choice.names.end()) {
    return InvalidArgument("tool_choice names the function '" + choice.name +
                           "' but tools has no such function")
        .At("tool_choice");
  }
  return OkStatus();
}

std::string CallText(const Json& call) {
  const Json& function = call["function"];
  Json plain = Json::object();
  plain["name"] = function["name"];
  plain["arguments"] =
      function.contains("arguments") ? function["arguments"] : Json::object();
  return "<tool_call>\n" + DumpJson(plain) + "\n</tool_call>";
}

std::string ToolsText(const Json& tools) {
  std::string text =
      "You may call functions. Each line between <tools> and </tools> "
      "describes one as JSON:\n<tools>\n";
  for (const Json& tool : tools) text += DumpJson(tool) + "\n";
  return text +
         "</tools>\nTo call a function, answer with its name and arguments as "
         "JSON between tags, once for each call:\n<tool_call>\n{\"name\": "
         "\"the name\", \"arguments\": {}}\n</tool_call>\nIts result comes "
         "back between <tool_response> and </tool_response>.";
}

std::string TextOf(const Json& message) {
  const auto content = message.find("content");
  return content != message.end() && content->is_string()
             ? content->get<std::string>()
             : "";
}

}  // namespace

Status ReadTools(const Json& body, ChatPrompt& chat) {
  ASSIGN_OR_RETURN(const Json* tools, ReadArray(body, "tools"));
  ToolChoice choice;
  if (tools != nullptr) {
    if (tools->size() > kMaxTools) {
      return InvalidArgument("tools holds " + std::to_string(tools->size()) +
                             " tools but may hold at most " +
                             std::to_string(kMaxTools))
          .At("tools");
    }
    for (size_t i = 0; i < tools->size(); ++i) {
      ASSIGN_OR_RETURN(
          std::string name,
          ReadTool((*tools)[i], "tools[" + std::to_string(i) + "]"));
      choice.names.push_back(std::move(name));
    }
  }
  RETURN_IF_ERROR(ReadChoice(body, choice));
  ASSIGN_OR_RETURN(const auto parallel, ReadBool(body, "parallel_tool_calls"));
  choice.parallel = parallel.value_or(true);
  if (!choice.names.empty() && choice.mode != ToolChoice::Mode::kNone) {
    Json kept = Json::array();
    for (const Json& tool : *tools) {
      const auto name = tool["function"]["name"].get<std::string>();
      if (std::ranges::count(choice.names, name) > 0) kept.push_back(tool);
    }
    chat.tools = std::make_shared<const Json>(std::move(kept));
  }
  chat.tool_choice = std::move(choice);
  return OkStatus();
}

Status ReadToolCalls(const std::string& path, Json& message) {
  const auto calls = message.find("tool_calls");
  if (calls == message.end() || calls->is_null()) {
    message.erase("tool_calls");
    return OkStatus();
  }
  const std::string calls_path = path + ".tool_calls";
  if (!calls->is_array()) return WrongType(calls_path, "an array", *calls);
  for (size_t i = 0; i < calls->size(); ++i) {
    Json& call = (*calls)[i];
    const std::string call_path = calls_path + "[" + std::to_string(i) + "]";
    const Json* function = FindField(call, "function");
    const Json* name =
        function == nullptr ? nullptr : FindField(*function, "name");
    if (name == nullptr || !name->is_string()) {
      return InvalidArgument(call_path +
                             " must be {\"id\": ..., \"type\": \"function\", "
                             "\"function\": {\"name\": ..., \"arguments\": "
                             "...}}, not " +
                             Shown(call))
          .At(call_path);
    }
    const Json* arguments = FindField(*function, "arguments");
    if (arguments == nullptr || arguments->is_null()) {
      call["function"]["arguments"] = Json::object();
      continue;
    }
    if (arguments->is_object()) continue;
    StatusOr<Json> parsed = Json();
    if (arguments->is_string()) {
      const auto& text = arguments->get_ref<const std::string&>();
      parsed = ParseJson(text.empty() ? "{}" : text);
    }
    if (!parsed.ok() || !parsed->is_object()) {
      const std::string at = call_path + ".function.arguments";
      return InvalidArgument(at + " is " + Shown(*arguments) +
                             " but must be the text of a JSON object")
          .At(at);
    }
    call["function"]["arguments"] = *std::move(parsed);
  }
  return OkStatus();
}

Json WithToolsAsText(const Json& messages, const Json* tools) {
  Json result = Json::array();
  if (tools != nullptr) {
    const bool has_system =
        !messages.empty() && messages[0].value("role", "") == "system";
    const std::string system = has_system ? TextOf(messages[0]) + "\n\n" : "";
    result.push_back(
        {{"role", "system"}, {"content", system + ToolsText(*tools)}});
  }
  for (const Json& message : messages) {
    const std::string role = message.value("role", "");
    if (&message == &messages[0] && role == "system" && tools != nullptr) {
      continue;
    }
    if (role == "tool") {
      const std::string text =
          "<tool_response>\n" + TextOf(message) + "\n</tool_response>";
      // The results of one turn are one message: roles alternate.
      if (&message != &messages[0] &&
          (&message)[-1].value("role", "") == "tool") {
        Json& last = result.back()["content"];
        last = last.get<std::string>() + "\n" + text;
      } else {
        result.push_back({{"role", "user"}, {"content", text}});
      }
      continue;
    }
    Json plain = message;
    if (role == "assistant" && message.contains("tool_calls")) {
      std::string text = TextOf(message);
      for (const Json& call : message["tool_calls"]) {
        text += (text.empty() ? "" : "\n") + CallText(call);
      }
      plain["content"] = std::move(text);
      plain.erase("tool_calls");
    }
    result.push_back(std::move(plain));
  }
  return result;
}

const std::string& OnlyName(const ToolChoice& choice) {
  return choice.name.empty() && choice.names.size() == 1 ? choice.names[0]
                                                         : choice.name;
}

StatusOr<std::string> ForcedCall(const OutputFormats& formats,
                                 const ChatPrompt& chat) {
  const ToolChoice& choice = chat.tool_choice;
  if (choice.mode != ToolChoice::Mode::kRequired) return std::string();
  if (formats.tools == nullptr) {
    return InvalidArgument(
               "tool_choice asks for a call but this model's calls are not "
               "read; start the server with --tool-call-parser or send "
               "tool_choice \"auto\"")
        .At("tool_choice");
  }
  const std::string& name = OnlyName(choice);
  std::string text(formats.tools->before_name);
  if (!name.empty()) text.append(name).append(formats.tools->behind_name);
  return text;
}

}  // namespace millrace::handlers
