// Source: github.com/ollama/ollama/blob/main/docs/api.md
#include "server/http/ollama_input.h"

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "handlers/json_fields.h"

namespace millrace::server::http {
namespace {

using Json = nlohmann::ordered_json;

// Ollama's `options`, `think` and `format` in the words of a chat.
StatusOr<Json> ChatFields(const Json& body) {
  constexpr std::pair<const char*, const char*> kNames[] = {
      {"temperature", "temperature"},
      {"top_k", "top_k"},
      {"top_p", "top_p"},
      {"min_p", "min_p"},
      {"typical_p", "typical_p"},
      {"mirostat", "mirostat"},
      {"mirostat_tau", "mirostat_tau"},
      {"mirostat_eta", "mirostat_eta"},
      {"seed", "seed"},
      {"stop", "stop"},
      {"tfs_z", "tfs_z"},
      {"repeat_penalty", "repeat_penalty"},
      {"repeat_last_n", "repeat_last_n"},
      {"presence_penalty", "presence_penalty"},
      {"frequency_penalty", "frequency_penalty"}};
  Json chat = Json::object();
  ASSIGN_OR_RETURN(const Json* options, handlers::ReadObject(body, "options"));
  if (options != nullptr) {
    for (const auto& [theirs, ours] : kNames) {
      if (const Json* value = handlers::FindField(*options, theirs)) {
        chat[ours] = *value;
      }
    }
    ASSIGN_OR_RETURN(const auto most,
                     handlers::ReadInt(*options, "num_predict"));
    if (most && *most > 0) chat["max_tokens"] = *most;  // -1, -2: no limit
  }
  const Json* format = handlers::FindField(body, "format");
  if (format != nullptr && !format->is_object() && *format != "json" &&
      *format != "") {
    return handlers::WrongType("format", "\"json\" or a JSON schema", *format);
  }
  if (format != nullptr && *format == "json") {
    chat["response_format"] = {{"type", "json_object"}};
  } else if (format != nullptr && format->is_object()) {
    chat["response_format"] = {
        {"type", "json_schema"},
        {"json_schema", {{"name", "format"}, {"schema", *format}}}};
  }
  if (const Json* think = handlers::FindField(body, "think")) {
    if (think->is_boolean()) {
      chat["chat_template_kwargs"]["enable_thinking"] = *think;
    } else {
      chat["reasoning_effort"] = *think;
    }
  }
  return chat;
}

// The content of a message: its text, or its images and then its text.
// `path`: of the object that has the images, with a dot behind it, or empty.
StatusOr<Json> WithImages(const Json& object, const std::string& path,
                          Json text,
                          std::vector<handlers::ImagePlace>& places) {
  const Json* images = handlers::FindField(object, "images");
  if (images == nullptr || images->empty()) return text;
  if (!images->is_array()) {
    return handlers::WrongType(path + "images", "an array of base64 strings",
                               *images);
  }
  Json parts = Json::array();
  for (size_t i = 0; i < images->size(); ++i) {
    const std::string field = path + "images[" + std::to_string(i) + "]";
    if (!(*images)[i].is_string()) {
      return handlers::WrongType(field, "a string in base64", (*images)[i]);
    }
    places.push_back({field, field, /*bare=*/true});
    parts.push_back({{"type", "image_url"}, {"image_url", (*images)[i]}});
  }
  if (!text.is_string() && !text.is_null()) {
    return handlers::WrongType(path + "content", "a string", text);
  }
  if (text.is_string() && !text.empty()) {
    parts.push_back({{"type", "text"}, {"text", std::move(text)}});
  }
  return parts;
}

// Clients of OpenAI's may write content as parts; images among them keep their
// place.
void AddPlaces(const Json& message, const std::string& path,
               std::vector<handlers::ImagePlace>& places) {
  const Json* content = handlers::FindField(message, "content");
  if (content == nullptr || !content->is_array()) return;
  for (size_t i = 0; i < content->size(); ++i) {
    const Json* type = handlers::FindField((*content)[i], "type");
    if (type == nullptr || *type != "image_url") continue;
    const std::string part = path + "content[" + std::to_string(i) + "]";
    places.push_back({part, part + ".image_url"});
  }
}

// A last message of the assistant is the beginning of what is to come.
bool GoesOn(const Json& message) {
  const Json* role = handlers::FindField(message, "role");
  const Json* content = handlers::FindField(message, "content");
  return role != nullptr && *role == "assistant" && content != nullptr &&
         content->is_string() && *content != "" &&
         handlers::FindField(message, "tool_calls") == nullptr;
}

ChatBody Made(Json chat, std::vector<handlers::ImagePlace> images) {
  return {std::make_shared<const Json>(std::move(chat)), std::move(images)};
}

}  // namespace

StatusOr<ChatBody> OllamaChatBody(const Json& body) {
  ASSIGN_OR_RETURN(Json chat, ChatFields(body));
  ASSIGN_OR_RETURN(const Json* messages, handlers::ReadArray(body, "messages"));
  chat["messages"] = Json::array();
  std::vector<handlers::ImagePlace> images;
  for (size_t i = 0; messages != nullptr && i < messages->size(); ++i) {
    Json message = (*messages)[i];
    const std::string path = "messages[" + std::to_string(i) + "].";
    const Json* files = handlers::FindField(message, "images");
    if (files != nullptr && !files->empty()) {
      ASSIGN_OR_RETURN(message["content"],
                       WithImages(message, path,
                                  message.value("content", Json("")), images));
    } else {
      AddPlaces(message, path, images);
    }
    if (message.is_object()) message.erase("images");
    chat["messages"].push_back(std::move(message));
  }
  if (const Json* tools = handlers::FindField(body, "tools")) {
    chat["tools"] = *tools;
  }
  if (!chat["messages"].empty() && GoesOn(chat["messages"].back())) {
    chat["continue_final_message"] = true;
  }
  return Made(std::move(chat), std::move(images));
}

StatusOr<ChatBody> OllamaGenerateBody(const Json& body) {
  ASSIGN_OR_RETURN(Json chat, ChatFields(body));
  for (const char* field : {"suffix", "template", "context"}) {
    const Json* value = handlers::FindField(body, field);
    if (value != nullptr && !value->empty() && *value != "") {
      return InvalidArgument(std::string(field) +
                             " is not supported; leave it out, or use "
                             "/api/chat for a conversation")
          .At(field);
    }
  }
  ASSIGN_OR_RETURN(const auto prompt, handlers::ReadString(body, "prompt"));
  ASSIGN_OR_RETURN(const auto system, handlers::ReadString(body, "system"));
  ASSIGN_OR_RETURN(const auto raw, handlers::ReadBool(body, "raw"));
  std::vector<handlers::ImagePlace> images;
  ASSIGN_OR_RETURN(Json content,
                   WithImages(body, "", Json(prompt.value_or("")), images));
  if (raw.value_or(false) && !images.empty()) {
    return InvalidArgument(
               "images stand in no raw prompt; leave raw out, so that the chat "
               "template places them")
        .At("images");
  }
  chat["messages"] = Json::array();
  if (system && !system->empty()) {
    chat["messages"].push_back({{"role", "system"}, {"content", *system}});
  }
  chat["messages"].push_back(
      {{"role", "user"}, {"content", std::move(content)}});
  return Made(std::move(chat), std::move(images));
}

}  // namespace millrace::server::http
