// Roles are not checked against a list: a template knows which it takes and
// says so by raise_exception.
#include "handlers/chat_messages.h"

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "handlers/json_fields.h"

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
  const auto content = message.find("content");
  if (content == message.end()) {
    // An assistant's turn may consist of tool calls.
    if (*role == "assistant") return message;
    return InvalidArgument(content_path + " is missing").At(content_path);
  }
  if (content->is_array()) {
    ASSIGN_OR_RETURN(std::string text, JoinTextParts(*content, content_path));
    Json flat = message;
    flat["content"] = std::move(text);
    return flat;
  }
  if (!content->is_string() && !content->is_null()) {
    return WrongType(content_path, "a string or an array of text parts",
                     *content);
  }
  return message;
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
  ASSIGN_OR_RETURN(const Json* tools, ReadArray(body, "tools"));
  if (tools != nullptr && !tools->empty()) {
    chat.tools = std::make_shared<const Json>(*tools);
  }
  ASSIGN_OR_RETURN(const Json* kwargs,
                   ReadObject(body, "chat_template_kwargs"));
  if (kwargs != nullptr) {
    chat.template_kwargs = std::make_shared<const Json>(*kwargs);
  }
  ASSIGN_OR_RETURN(const auto add_prompt,
                   ReadBool(body, "add_generation_prompt"));
  chat.add_generation_prompt = add_prompt.value_or(true);
  return chat;
}

}  // namespace millrace::handlers
