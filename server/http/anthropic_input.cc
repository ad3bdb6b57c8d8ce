// Source: docs.anthropic.com/en/api/messages
#include "server/http/anthropic_input.h"

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "handlers/json_fields.h"

namespace millrace::server::http {
namespace {

using Json = nlohmann::ordered_json;

// Text of a string or of a list of text blocks.
StatusOr<std::string> ReadText(const Json& value, const std::string& path) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) {
    return handlers::WrongType(path, "a string or an array of text blocks",
                               value);
  }
  std::string text;
  for (size_t i = 0; i < value.size(); ++i) {
    const std::string at = path + "[" + std::to_string(i) + "]";
    const Json* type = handlers::FindField(value[i], "type");
    const Json* part = handlers::FindField(value[i], "text");
    if (type == nullptr || *type != "text" || part == nullptr ||
        !part->is_string()) {
      return InvalidArgument(at + " is " + handlers::Shown(value[i]) +
                             " but this model takes only {\"type\": \"text\", "
                             "\"text\": ...}")
          .At(at);
    }
    if (i > 0) text += '\n';
    text += part->get_ref<const std::string&>();
  }
  return text;
}

// The image of a block as a part of a chat.
StatusOr<Json> ReadImage(const Json& block, const std::string& path,
                         std::vector<handlers::ImagePlace>& images) {
  const std::string at = path + ".source";
  const Json* source = handlers::FindField(block, "source");
  const Json* type =
      source == nullptr ? nullptr : handlers::FindField(*source, "type");
  const bool bare = type != nullptr && *type == "base64";
  if (!bare && (type == nullptr || *type != "url")) {
    return InvalidArgument(
               at + ".type is " +
               (type == nullptr ? "missing" : handlers::Shown(*type)) +
               " but that of an image must be \"base64\", or \"url\" with a "
               "data URL")
        .At(at + ".type");
  }
  const char* name = bare ? "data" : "url";
  const Json* file = handlers::FindField(*source, name);
  const std::string field = at + "." + name;
  if (file == nullptr) return InvalidArgument(field + " is missing").At(field);
  if (!file->is_string()) return handlers::WrongType(field, "a string", *file);
  images.push_back({path, field, bare});
  return Json{{"type", "image_url"}, {"image_url", *file}};
}

Json ToolMessage(const Json& block, std::string text) {
  return {{"role", "tool"},
          {"tool_call_id", block.value("tool_use_id", Json())},
          {"content", std::move(text)}};
}

// The blocks of one message as messages of a chat: results of tools stand for
// themselves, before the rest.
Status AddBlocks(const std::string& role, const Json& blocks,
                 const std::string& path, Json& messages,
                 std::vector<handlers::ImagePlace>& images) {
  Json message = {{"role", role}, {"content", nullptr}};
  std::string text, reasoning;
  Json parts = Json::array();  // the same texts, and images between them
  bool has_text = false;
  bool has_image = false;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const Json& block = blocks[i];
    const std::string at = path + "[" + std::to_string(i) + "]";
    const Json* type = handlers::FindField(block, "type");
    const std::string kind =
        type != nullptr && type->is_string() ? type->get<std::string>() : "";
    if (kind == "text") {
      ASSIGN_OR_RETURN(const std::string part,
                       ReadText(Json::array({block}), at));
      text += (has_text ? "\n" : "") + part;
      has_text = true;
      parts.push_back({{"type", "text"}, {"text", part}});
    } else if (kind == "image" && role == "user") {
      ASSIGN_OR_RETURN(Json part, ReadImage(block, at, images));
      parts.push_back(std::move(part));
      has_image = true;
    } else if (kind == "tool_result" && role == "user") {
      const Json* content = handlers::FindField(block, "content");
      std::string result;
      if (content != nullptr) {
        ASSIGN_OR_RETURN(result, ReadText(*content, at + ".content"));
      }
      messages.push_back(ToolMessage(block, std::move(result)));
    } else if (kind == "tool_use" && role == "assistant") {
      message["tool_calls"].push_back(
          {{"id", block.value("id", Json())},
           {"type", "function"},
           {"function",
            {{"name", block.value("name", Json())},
             {"arguments", block.value("input", Json::object())}}}});
    } else if (kind == "thinking" && role == "assistant") {
      const Json* thought = handlers::FindField(block, "thinking");
      if (thought != nullptr && thought->is_string()) {
        reasoning += thought->get<std::string>();
      }
    } else if (kind != "redacted_thinking") {
      return InvalidArgument(
                 at + ".type is " +
                 (type == nullptr ? "missing" : handlers::Shown(*type)) +
                 " but a message of the " + role +
                 " may hold text, image, tool_use, tool_result and thinking "
                 "blocks")
          .At(at + ".type");
    }
  }
  if (has_text) message["content"] = std::move(text);
  if (has_image) message["content"] = std::move(parts);
  if (!reasoning.empty()) message["reasoning_content"] = std::move(reasoning);
  const bool only_results =
      !has_text && !has_image && role == "user" && !blocks.empty();
  if (!only_results) messages.push_back(std::move(message));
  return OkStatus();
}

StatusOr<Json> ReadMessages(const Json& body,
                            std::vector<handlers::ImagePlace>& images) {
  Json messages = Json::array();
  if (const Json* system = handlers::FindField(body, "system")) {
    ASSIGN_OR_RETURN(std::string text, ReadText(*system, "system"));
    messages.push_back({{"role", "system"}, {"content", std::move(text)}});
  }
  ASSIGN_OR_RETURN(const Json* given, handlers::ReadArray(body, "messages"));
  if (given == nullptr || given->empty()) {
    return InvalidArgument("messages is missing or empty; send at least one")
        .At("messages");
  }
  for (size_t i = 0; i < given->size(); ++i) {
    const Json& message = (*given)[i];
    const std::string path = "messages[" + std::to_string(i) + "]";
    const Json* role = handlers::FindField(message, "role");
    const Json* content = handlers::FindField(message, "content");
    if (role == nullptr || (*role != "user" && *role != "assistant")) {
      return InvalidArgument(
                 path + ".role is " +
                 (role == nullptr ? "missing" : handlers::Shown(*role)) +
                 " but must be \"user\" or \"assistant\"; the system prompt "
                 "stands in system")
          .At(path + ".role");
    }
    if (content != nullptr && content->is_array()) {
      RETURN_IF_ERROR(AddBlocks(role->get<std::string>(), *content,
                                path + ".content", messages, images));
      continue;
    }
    if (content == nullptr || !content->is_string()) {
      return InvalidArgument(path +
                             ".content must be a string or an array of blocks")
          .At(path + ".content");
    }
    messages.push_back({{"role", *role}, {"content", *content}});
  }
  return messages;
}

StatusOr<Json> ReadTools(const Json& tools) {
  Json result = Json::array();
  for (size_t i = 0; i < tools.size(); ++i) {
    const Json& tool = tools[i];
    const std::string path = "tools[" + std::to_string(i) + "]";
    const Json* type = handlers::FindField(tool, "type");
    if (!tool.is_object() || (type != nullptr && *type != "custom")) {
      return InvalidArgument(path + " is " + handlers::Shown(tool) +
                             " but must be {\"name\": ..., \"input_schema\": "
                             "...}; the server runs no tools of its own")
          .At(path);
    }
    Json function = {{"name", tool.value("name", Json())}};
    if (tool.contains("description")) {
      function["description"] = tool["description"];
    }
    if (tool.contains("input_schema")) {
      function["parameters"] = tool["input_schema"];
    }
    if (tool.contains("strict")) function["strict"] = tool["strict"];
    result.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return result;
}

Status ReadToolChoice(const Json& choice, Json& chat) {
  const Json* type = handlers::FindField(choice, "type");
  if (type != nullptr && (*type == "auto" || *type == "none")) {
    chat["tool_choice"] = *type;
  } else if (type != nullptr && *type == "any") {
    chat["tool_choice"] = "required";
  } else if (type != nullptr && *type == "tool") {
    chat["tool_choice"] = {
        {"type", "function"},
        {"function", {{"name", choice.value("name", Json())}}}};
  } else {
    return InvalidArgument("tool_choice is " + handlers::Shown(choice) +
                           " but its type must be auto, any, tool or none")
        .At("tool_choice");
  }
  ASSIGN_OR_RETURN(const auto one,
                   handlers::ReadBool(choice, "disable_parallel_tool_use"));
  chat["parallel_tool_calls"] = !one.value_or(false);
  return OkStatus();
}

// `output_config.format`, or output_format as the beta had it: a schema that
// the text is held to.
Status ReadOutputFormat(const Json& body, Json& chat) {
  ASSIGN_OR_RETURN(const Json* config,
                   handlers::ReadObject(body, "output_config"));
  std::string path = "output_format";
  const Json* format = handlers::FindField(body, "output_format");
  if (config != nullptr && handlers::FindField(*config, "format") != nullptr) {
    path = "output_config.format";
    format = handlers::FindField(*config, "format");
  }
  if (format == nullptr) return OkStatus();
  const Json* schema =
      format->is_object() ? handlers::FindField(*format, "schema") : nullptr;
  if (schema == nullptr || format->value("type", Json()) != "json_schema") {
    return handlers::WrongType(
        path, "{\"type\": \"json_schema\", \"schema\": {...}}", *format);
  }
  chat["response_format"] = {
      {"type", "json_schema"},
      {"json_schema", {{"name", "format"}, {"schema", *schema}}}};
  return OkStatus();
}

// A last message of the assistant is the beginning of what is to come.
bool IsPrefill(const Json& message) {
  const Json* content = handlers::FindField(message, "content");
  return message["role"] == "assistant" && !message.contains("tool_calls") &&
         content != nullptr && content->is_string() &&
         !content->get_ref<const std::string&>().empty();
}

}  // namespace

StatusOr<ChatBody> AnthropicChatBody(const Json& body) {
  Json chat = body;
  std::vector<handlers::ImagePlace> images;
  for (const char* key : {"system", "messages", "metadata", "service_tier",
                          "thinking", "stop_sequences", "tools", "tool_choice",
                          "output_config", "output_format"}) {
    chat.erase(key);
  }
  RETURN_IF_ERROR(ReadOutputFormat(body, chat));
  ASSIGN_OR_RETURN(chat["messages"], ReadMessages(body, images));
  const Json& messages = chat["messages"];
  if (!messages.empty() && IsPrefill(messages.back())) {
    chat["continue_final_message"] = true;
  }
  ASSIGN_OR_RETURN(const Json* tools, handlers::ReadArray(body, "tools"));
  if (tools != nullptr) {
    ASSIGN_OR_RETURN(chat["tools"], ReadTools(*tools));
  }
  ASSIGN_OR_RETURN(const Json* choice,
                   handlers::ReadObject(body, "tool_choice"));
  if (choice != nullptr) RETURN_IF_ERROR(ReadToolChoice(*choice, chat));
  if (const Json* stop = handlers::FindField(body, "stop_sequences")) {
    chat["stop"] = *stop;
  }
  ASSIGN_OR_RETURN(const Json* thinking,
                   handlers::ReadObject(body, "thinking"));
  if (thinking != nullptr) {
    const Json* type = handlers::FindField(*thinking, "type");
    RETURN_IF_ERROR(
        handlers::ReadObject(body, "chat_template_kwargs").status());
    Json& kwargs = chat["chat_template_kwargs"];
    if (!kwargs.contains("enable_thinking")) {
      kwargs["enable_thinking"] = type != nullptr && *type != "disabled";
    }
    ASSIGN_OR_RETURN(
        const auto budget,
        handlers::ReadInt(*thinking, "budget_tokens", {1, INT64_MAX}));
    if (budget) chat["thinking_token_budget"] = *budget;
  }
  return ChatBody{std::make_shared<const Json>(std::move(chat)),
                  std::move(images)};
}

}  // namespace millrace::server::http
