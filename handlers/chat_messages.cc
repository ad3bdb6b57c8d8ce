// Roles are not checked against a list: a template knows which it takes and
// says so by raise_exception.
#include "handlers/chat_messages.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "handlers/json_fields.h"
#include "handlers/tool_prompt.h"

namespace millrace::handlers {
namespace {

using Json = nlohmann::ordered_json;

StatusOr<std::string> JoinTextParts(const Json& parts,
                                    const std::string& path) {
  std::string text;
  for (size_t j = 0; j < parts.size(); ++j) {
    const Json& part = parts[j];
    const std::string part_path = path + "[" + std::to_string(j) + "]";
    if (!part.is_object()) return WrongType(part_path, "an object", part);
    const Json* type = FindField(part, "type");
    if (type == nullptr) {
      return InvalidArgument(part_path +
                             ".type is missing; a text part is {\"type\": "
                             "\"text\", \"text\": \"...\"}")
          .At(part_path + ".type");
    }
    if (!type->is_string()) {
      return WrongType(part_path + ".type", "a string", *type);
    }
    if (*type != "text") {
      return InvalidArgument(part_path + ".type is " + Shown(*type) +
                             " but this model takes only \"text\" parts")
          .At(part_path + ".type");
    }
    const Json* value = FindField(part, "text");
    if (value == nullptr) {
      return InvalidArgument(part_path + ".text is missing")
          .At(part_path + ".text");
    }
    if (!value->is_string()) {
      return WrongType(part_path + ".text", "a string", *value);
    }
    if (j > 0) text += '\n';
    text += value->get_ref<const std::string&>();
  }
  return text;
}

StatusOr<Json> ReadMessage(const Json& message, const std::string& path) {
  if (!message.is_object()) return WrongType(path, "an object", message);
  const Json* role = FindField(message, "role");
  if (role == nullptr) {
    return InvalidArgument(path +
                           ".role is missing; it is \"system\", \"user\" or "
                           "\"assistant\" for most models")
        .At(path + ".role");
  }
  if (!role->is_string()) return WrongType(path + ".role", "a string", *role);

  const std::string content_path = path + ".content";
  Json checked = message;
  RETURN_IF_ERROR(ReadToolCalls(path, checked));
  const auto content = message.find("content");
  if (content == message.end()) {
    // An assistant's turn may consist of tool calls.
    if (*role == "assistant") return checked;
    return InvalidArgument(content_path + " is missing").At(content_path);
  }
  if (content->is_array()) {
    ASSIGN_OR_RETURN(std::string text, JoinTextParts(*content, content_path));
    checked["content"] = std::move(text);
    return checked;
  }
  if (!content->is_string() && !content->is_null()) {
    return WrongType(content_path, "a string or an array of text parts",
                     *content);
  }
  return checked;
}

// `chat_template_kwargs` and what else reaches the template: reasoning_effort
// by that name, where "none" also means enable_thinking: false (Qwen and
// others).
Status ReadTemplateFields(const Json& body, ChatPrompt& chat) {
  ASSIGN_OR_RETURN(const Json* given, ReadObject(body, "chat_template_kwargs"));
  ASSIGN_OR_RETURN(const auto effort, ReadString(body, "reasoning_effort"));
  ASSIGN_OR_RETURN(const auto format, ReadString(body, "reasoning_format"));
  if (format) chat.parse_reasoning = *format != "none";
  Json kwargs = given == nullptr ? Json::object() : *given;
  if (effort) {
    constexpr std::string_view kEfforts[] = {"none",   "minimal", "low",
                                             "medium", "high",    "xhigh"};
    if (std::ranges::find(kEfforts, *effort) == std::end(kEfforts)) {
      return InvalidArgument(
                 "reasoning_effort is " + Shown(*effort) +
                 " but must be none, minimal, low, medium, high or xhigh")
          .At("reasoning_effort");
    }
    if (!kwargs.contains("reasoning_effort")) {
      kwargs["reasoning_effort"] = *effort;
    }
    if (*effort == "none" && !kwargs.contains("enable_thinking")) {
      kwargs["enable_thinking"] = false;
    }
  }
  if (!kwargs.empty()) {
    chat.template_kwargs = std::make_shared<const Json>(std::move(kwargs));
  }
  return OkStatus();
}

}  // namespace

StatusOr<ChatPrompt> ReadChatPrompt(const Json& body) {
  if (!body.is_object()) {
    return InvalidArgument("the request must be a JSON object");
  }
  ASSIGN_OR_RETURN(const Json* messages, ReadArray(body, "messages"));
  if (messages == nullptr) {
    return InvalidArgument(
               "messages is missing; it is an array such as [{\"role\": "
               "\"user\", \"content\": \"Hello\"}]")
        .At("messages");
  }
  if (messages->empty()) {
    return InvalidArgument(
               "messages is an empty array but must hold at least one message")
        .At("messages");
  }
  Json checked = Json::array();
  checked.get_ref<Json::array_t&>().reserve(messages->size());
  for (size_t i = 0; i < messages->size(); ++i) {
    ASSIGN_OR_RETURN(
        Json message,
        ReadMessage((*messages)[i], "messages[" + std::to_string(i) + "]"));
    checked.push_back(std::move(message));
  }

  ChatPrompt chat;
  chat.messages = std::make_shared<const Json>(std::move(checked));
  RETURN_IF_ERROR(ReadTools(body, chat));
  RETURN_IF_ERROR(ReadTemplateFields(body, chat));
  ASSIGN_OR_RETURN(const auto add_prompt,
                   ReadBool(body, "add_generation_prompt"));
  chat.add_generation_prompt = add_prompt.value_or(true);
  return chat;
}

}  // namespace millrace::handlers
