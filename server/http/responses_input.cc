// Source: platform.openai.com/docs/api-reference/responses
#include "server/http/responses_input.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/base/utf8.h"
#include "handlers/json_fields.h"

namespace millrace::server::http {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kPrevious = "previous_response_id";

std::string TypeOf(const Json& item) {
  const Json* type = handlers::FindField(item, "type");
  return type != nullptr && type->is_string() ? type->get<std::string>() : "";
}

// Text of a string or of input_text and output_text parts.
StatusOr<std::string> ReadText(const Json& content, const std::string& path) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) {
    return handlers::WrongType(path, "a string or an array of text parts",
                               content);
  }
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    const Json& part = content[i];
    const std::string type = TypeOf(part);
    const Json* words = handlers::FindField(part, "text");
    const bool is_text =
        type == "input_text" || type == "output_text" || type == "text";
    if (!is_text || words == nullptr || !words->is_string()) {
      const std::string at = path + "[" + std::to_string(i) + "]";
      return InvalidArgument(at + " is " + handlers::Shown(part) +
                             " but must be an input_text or output_text")
          .At(at);
    }
    if (i > 0) text += '\n';
    text += words->get_ref<const std::string&>();
  }
  return text;
}

bool HasImage(const Json& content) {
  return content.is_array() &&
         std::ranges::any_of(content, [](const Json& part) {
           return TypeOf(part) == "input_image";
         });
}

// A message's content: text, or a list of parts where it has images.
StatusOr<Json> ReadContent(const Json& content, const std::string& path,
                           std::vector<handlers::ImagePlace>& images) {
  if (!HasImage(content)) {
    ASSIGN_OR_RETURN(std::string text, ReadText(content, path));
    return Json(std::move(text));
  }
  Json parts = Json::array();
  for (size_t i = 0; i < content.size(); ++i) {
    const Json& part = content[i];
    const std::string at = path + "[" + std::to_string(i) + "]";
    if (TypeOf(part) != "input_image") {
      ASSIGN_OR_RETURN(std::string text, ReadText(Json::array({part}), at));
      parts.push_back({{"type", "text"}, {"text", std::move(text)}});
      continue;
    }
    const std::string field = at + ".image_url";
    const Json* url = handlers::FindField(part, "image_url");
    if (url == nullptr || !url->is_string()) {
      return InvalidArgument(field +
                             " must be a string, the data URL of an image; "
                             "files by file_id are not read")
          .At(field);
    }
    images.push_back({at, field});
    parts.push_back({{"type", "image_url"}, {"image_url", *url}});
  }
  return parts;
}

// One item of `input` as a message; calls that follow each other are one
// message of the assistant's.
Status AddItem(const Json& item, const std::string& path, Json& messages,
               std::vector<handlers::ImagePlace>& images) {
  const std::string type = TypeOf(item);
  if (type == "reasoning") return OkStatus();  // templates leave it out
  if (type == "function_call") {
    if (messages.empty() || messages.back().value("role", "") != "assistant") {
      messages.push_back({{"role", "assistant"}, {"content", nullptr}});
    }
    messages.back()["tool_calls"].push_back(
        {{"id", item.value("call_id", Json())},
         {"type", "function"},
         {"function",
          {{"name", item.value("name", Json())},
           {"arguments", item.value("arguments", Json("{}"))}}}});
    return OkStatus();
  }
  if (type == "function_call_output") {
    const Json* output = handlers::FindField(item, "output");
    std::string text;
    if (output != nullptr) {
      ASSIGN_OR_RETURN(text, ReadText(*output, path + ".output"));
    }
    messages.push_back({{"role", "tool"},
                        {"tool_call_id", item.value("call_id", Json())},
                        {"content", std::move(text)}});
    return OkStatus();
  }
  const Json* role = handlers::FindField(item, "role");
  const Json* content = handlers::FindField(item, "content");
  if ((!type.empty() && type != "message") || role == nullptr ||
      !role->is_string() || content == nullptr) {
    return InvalidArgument(path + " is " + handlers::Shown(item) +
                           " but must be a message, a function_call, a "
                           "function_call_output or reasoning")
        .At(path);
  }
  ASSIGN_OR_RETURN(Json read, ReadContent(*content, path + ".content", images));
  // What OpenAI's newer models call the system prompt.
  const Json name = *role == "developer" ? Json("system") : *role;
  messages.push_back({{"role", name}, {"content", std::move(read)}});
  return OkStatus();
}

StatusOr<Json> ChatTools(const Json& tools) {
  Json result = Json::array();
  for (size_t i = 0; i < tools.size(); ++i) {
    const Json& tool = tools[i];
    if (TypeOf(tool) != "function") {
      const std::string at = "tools[" + std::to_string(i) + "].type";
      return InvalidArgument(at + " is " +
                             handlers::Shown(tool.is_object()
                                                 ? tool.value("type", Json())
                                                 : tool) +
                             " but must be \"function\"; the server runs no "
                             "tools of its own")
          .At(at);
    }
    Json function = tool;
    function.erase("type");
    result.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return result;
}

Status CheckUnsupported(const Json& body) {
  ASSIGN_OR_RETURN(const auto background,
                   handlers::ReadBool(body, "background"));
  if (background.value_or(false)) {
    return InvalidArgument(
               "background is true but responses are made while the client "
               "waits; leave it out")
        .At("background")
        .Because("unsupported_parameter");
  }
  for (const char* field : {"conversation", "prompt"}) {
    if (handlers::FindField(body, field) != nullptr) {
      return InvalidArgument(std::string(field) +
                             " is not supported; send input and "
                             "previous_response_id")
          .At(field)
          .Because("unsupported_parameter");
    }
  }
  const Json* truncation = handlers::FindField(body, "truncation");
  if (truncation != nullptr && *truncation != "disabled") {
    return InvalidArgument("truncation is " + handlers::Shown(*truncation) +
                           " but a conversation is never shortened here; "
                           "leave it out")
        .At("truncation")
        .Because("unsupported_parameter");
  }
  return OkStatus();
}

// What of `include` this server can give; the rest belongs to tools and
// contents that it has not, so that there is nothing to leave out.
StatusOr<bool> IncludesLogprobs(const Json& body) {
  constexpr std::string_view kLogprobs = "message.output_text.logprobs";
  constexpr std::string_view kNothingHere[] = {
      "code_interpreter_call.outputs", "computer_call_output.output.image_url",
      "file_search_call.results",      "message.input_image.image_url",
      "reasoning.encrypted_content",   "web_search_call.action.sources",
      "web_search_call.results"};
  ASSIGN_OR_RETURN(const Json* include, handlers::ReadArray(body, "include"));
  bool includes = false;
  for (size_t i = 0; include != nullptr && i < include->size(); ++i) {
    const std::string path = "include[" + std::to_string(i) + "]";
    ASSIGN_OR_RETURN(const std::string name,
                     handlers::AsString((*include)[i], path));
    if (name == kLogprobs) {
      includes = true;
    } else if (std::ranges::find(kNothingHere, name) ==
               std::end(kNothingHere)) {
      return InvalidArgument(path + " is '" + Shortened(name, 60) +
                             "', which nothing here has; " +
                             std::string(kLogprobs) + " is offered")
          .At("include");
    }
  }
  return includes;
}

size_t CountImages(const Json& messages) {
  size_t count = 0;
  for (const Json& message : messages) {
    const Json* content = handlers::FindField(message, "content");
    if (content == nullptr || !content->is_array()) continue;
    count += static_cast<size_t>(std::ranges::count_if(
        *content,
        [](const Json& part) { return TypeOf(part) == "image_url"; }));
  }
  return count;
}

}  // namespace

Json InputItems(const Json& body) {
  const Json* input = handlers::FindField(body, "input");
  if (input != nullptr && input->is_array()) return *input;
  return Json::array({Json{
      {"type", "message"},
      {"role", "user"},
      {"content",
       Json::array({Json{{"type", "input_text"},
                         {"text", input == nullptr ? Json("") : *input}}})}}});
}

StatusOr<ChatBody> ResponsesChatBody(const Json& body, Json history) {
  RETURN_IF_ERROR(CheckUnsupported(body));
  std::vector<handlers::ImagePlace> images(
      CountImages(history), {kPrevious, kPrevious, /*bare=*/false});
  Json chat = body;
  for (const char* key :
       {"input", "instructions", "tools", "tool_choice", "text", "reasoning",
        "previous_response_id", "max_output_tokens", "include"}) {
    chat.erase(key);
  }
  Json messages = Json::array();
  ASSIGN_OR_RETURN(const auto instructions,
                   handlers::ReadString(body, "instructions"));
  if (instructions) {
    messages.push_back({{"role", "system"}, {"content", *instructions}});
  }
  for (Json& message : history) messages.push_back(std::move(message));
  const Json* input = handlers::FindField(body, "input");
  if (input == nullptr || (!input->is_string() && !input->is_array())) {
    return InvalidArgument(
               "input is missing; send a string or an array of items")
        .At("input");
  }
  if (input->is_string()) {
    messages.push_back({{"role", "user"}, {"content", *input}});
  } else {
    for (size_t i = 0; i < input->size(); ++i) {
      RETURN_IF_ERROR(AddItem((*input)[i], "input[" + std::to_string(i) + "]",
                              messages, images));
    }
  }
  chat["messages"] = std::move(messages);
  ASSIGN_OR_RETURN(const Json* tools, handlers::ReadArray(body, "tools"));
  if (tools != nullptr) {
    ASSIGN_OR_RETURN(chat["tools"], ChatTools(*tools));
  }
  if (const Json* choice = handlers::FindField(body, "tool_choice")) {
    chat["tool_choice"] = *choice;
    if (const Json* name = handlers::FindField(*choice, "name")) {
      chat["tool_choice"] = {{"type", "function"},
                             {"function", {{"name", *name}}}};
    }
  }
  ASSIGN_OR_RETURN(const bool includes_logprobs, IncludesLogprobs(body));
  if (includes_logprobs ||
      handlers::FindField(body, "top_logprobs") != nullptr) {
    chat["logprobs"] = true;
  }
  if (const Json* most = handlers::FindField(body, "max_output_tokens")) {
    chat["max_tokens"] = *most;
  }
  ASSIGN_OR_RETURN(const Json* text, handlers::ReadObject(body, "text"));
  if (text != nullptr) {
    if (const Json* format = handlers::FindField(*text, "format")) {
      Json as_chat = *format;
      if (TypeOf(*format) == "json_schema") {
        Json schema = *format;
        schema.erase("type");
        as_chat = {{"type", "json_schema"}, {"json_schema", std::move(schema)}};
      }
      chat["response_format"] = std::move(as_chat);
    }
  }
  ASSIGN_OR_RETURN(const Json* reasoning,
                   handlers::ReadObject(body, "reasoning"));
  if (reasoning != nullptr) {
    if (const Json* effort = handlers::FindField(*reasoning, "effort")) {
      chat["reasoning_effort"] = *effort;
    }
  }
  return ChatBody{std::make_shared<const Json>(std::move(chat)),
                  std::move(images)};
}

}  // namespace millrace::server::http
