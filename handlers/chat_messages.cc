// Roles are not checked against a list: a template knows which it takes and
// says so by raise_exception.
#include "handlers/chat_messages.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/base/base64.h"
#include "handlers/generate_prompt.h"
#include "handlers/json_fields.h"
#include "handlers/reasoning_limits.h"
#include "handlers/tool_prompt.h"

namespace millrace::handlers {
namespace {

using Json = nlohmann::ordered_json;

StatusOr<std::string> TextOfPart(const Json& part, const std::string& path) {
  const Json* value = FindField(part, "text");
  if (value == nullptr) {
    return InvalidArgument(path + ".text is missing").At(path + ".text");
  }
  if (!value->is_string()) {
    return WrongType(path + ".text", "a string", *value);
  }
  return value->get<std::string>();
}

// The file within "data:image/png;base64,…". Nothing is fetched for a client:
// it could make the server ask machines that the client cannot reach.
StatusOr<std::string> ReadDataUrl(const std::string& url,
                                  const std::string& path) {
  if (!url.starts_with("data:")) {
    return InvalidArgument(
               path +
               " is no data URL, and this server fetches nothing; send the "
               "image itself as data:image/png;base64,... (or jpeg, webp)")
        .At(path);
  }
  const size_t comma = url.find(',');
  if (comma == std::string::npos ||
      !url.substr(0, comma).ends_with(";base64")) {
    return InvalidArgument(path +
                           " has no ';base64,': the data URL of an image is "
                           "data:image/png;base64,...")
        .At(path);
  }
  auto bytes = DecodeBase64(std::string_view(url).substr(comma + 1));
  if (!bytes || bytes->empty()) {
    return InvalidArgument(path + " has no base64 behind its comma").At(path);
  }
  return *std::move(bytes);
}

// Reads images as they come, in the order of the messages.
class ImageReader {
 public:
  explicit ImageReader(std::span<const ImagePlace> places) : places_(places) {}

  Status Read(const Json& part, const std::string& path) {
    const Json* value = FindField(part, "image_url");
    if (value == nullptr) {
      return InvalidArgument(path + ".image_url is missing")
          .At(path + ".image_url");
    }
    const Json* url = value->is_object() ? FindField(*value, "url") : value;
    const std::string url_path =
        path + (value->is_object() ? ".image_url.url" : ".image_url");
    if (url == nullptr) {
      return InvalidArgument(url_path + " is missing").At(url_path);
    }
    if (!url->is_string()) return WrongType(url_path, "a string", *url);
    const auto& text = url->get_ref<const std::string&>();
    if (images_.size() < places_.size()) {
      const ImagePlace& place = places_[images_.size()];
      Add(place.bare ? ReadImageFile(text, place.field)
                     : ReadDataUrl(text, place.field),
          place.part, place.field);
    } else {
      Add(ReadDataUrl(text, url_path), path, path + ".image_url");
    }
    return OkStatus();
  }

  size_t size() const { return images_.size(); }
  std::vector<ChatImage> Take() { return std::move(images_); }

 private:
  void Add(StatusOr<std::string> bytes, std::string path, std::string field) {
    ChatImage image = {nullptr, std::move(path), std::move(field)};
    if (bytes.ok()) {
      image.bytes = std::make_shared<const std::string>(*std::move(bytes));
    } else {
      image.status = bytes.status();
    }
    images_.push_back(std::move(image));
  }

  const std::span<const ImagePlace> places_;
  std::vector<ChatImage> images_;
};

// One string of text parts, or a list where there are images.
StatusOr<Json> ReadParts(const Json& parts, const std::string& path,
                         ImageReader& images) {
  std::string text;
  Json list = Json::array();
  const size_t before = images.size();
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
    if (*type == "text") {
      ASSIGN_OR_RETURN(const std::string own, TextOfPart(part, part_path));
      if (j > 0) text += '\n';
      text += own;
      list.push_back({{"type", "text"}, {"text", own}});
    } else if (*type == "image_url") {
      RETURN_IF_ERROR(images.Read(part, part_path));
      list.push_back({{"type", "image"}});
    } else {
      return InvalidArgument(part_path + ".type is " + Shown(*type) +
                             " but only \"text\" and \"image_url\" parts are "
                             "taken")
          .At(part_path + ".type");
    }
  }
  if (images.size() > before) return list;
  return Json(std::move(text));
}

StatusOr<Json> ReadMessage(const Json& message, const std::string& path,
                           ImageReader& images) {
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
    ASSIGN_OR_RETURN(checked["content"],
                     ReadParts(*content, content_path, images));
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
  ASSIGN_OR_RETURN(const auto goes_on, ReadBool(body, kContinueFinalMessage));
  if (goes_on) kwargs[kContinueFinalMessage] = *goes_on;
  if (const auto null = kwargs.find(kContinueFinalMessage);
      null != kwargs.end() && null->is_null()) {
    kwargs.erase(null);
  }
  RETURN_IF_ERROR(ReadReasoningBudget(body, kwargs));
  if (!kwargs.empty()) {
    chat.template_kwargs = std::make_shared<const Json>(std::move(kwargs));
  }
  return OkStatus();
}

// Whether the last message is to go on, which stands among the template's
// arguments as in transformers.
Status CheckContinuation(const Json& body, const ChatPrompt& chat) {
  if (chat.template_kwargs == nullptr) return OkStatus();
  const auto goes_on = ReadBool(*chat.template_kwargs, kContinueFinalMessage);
  if (!goes_on.ok()) {
    return goes_on.status().Prefixed("chat_template_kwargs");
  }
  if (!goes_on->value_or(false)) return OkStatus();
  const auto refuse = [](const std::string& why) {
    return InvalidArgument("continue_final_message is true but " + why)
        .At(kContinueFinalMessage);
  };
  if (ReadBool(body, "add_generation_prompt")->value_or(false)) {
    return refuse(
        "so is add_generation_prompt, which begins another message; set one of "
        "them to false");
  }
  if (chat.tool_choice.mode == ToolChoice::Mode::kRequired) {
    return refuse("tool_choice demands a call; send \"auto\"");
  }
  const Json& last = chat.messages->back();
  if (last.contains("tool_calls") && !last["tool_calls"].empty()) {
    return refuse("the last message has tool_calls; send their results");
  }
  return OkStatus();
}

}  // namespace

StatusOr<std::string> ReadImageFile(const std::string& text,
                                    const std::string& field) {
  if (text.starts_with("data:")) return ReadDataUrl(text, field);
  auto bytes = DecodeBase64(text);
  if (!bytes || bytes->empty()) {
    return InvalidArgument(field + " is no base64; send the file of an image")
        .At(field);
  }
  return *std::move(bytes);
}

StatusOr<ChatPrompt> ReadChatPrompt(const Json& body,
                                    std::span<const ImagePlace> images) {
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
  ChatPrompt chat;
  ImageReader reader(images);
  for (size_t i = 0; i < messages->size(); ++i) {
    const std::string path = "messages[" + std::to_string(i) + "]";
    ASSIGN_OR_RETURN(Json message, ReadMessage((*messages)[i], path, reader));
    checked.push_back(std::move(message));
  }
  chat.images = reader.Take();

  chat.messages = std::make_shared<const Json>(std::move(checked));
  RETURN_IF_ERROR(ReadTools(body, chat));
  RETURN_IF_ERROR(ReadTemplateFields(body, chat));
  ASSIGN_OR_RETURN(const auto add_prompt,
                   ReadBool(body, "add_generation_prompt"));
  chat.add_generation_prompt = add_prompt.value_or(true);
  RETURN_IF_ERROR(CheckContinuation(body, chat));
  return chat;
}

}  // namespace millrace::handlers
