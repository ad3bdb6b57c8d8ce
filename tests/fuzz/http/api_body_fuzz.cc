// Any bytes as a body of OpenAI's Responses, Anthropic's Messages or Ollama's
// two routes (the first byte says which): refused with a sentence that names a
// field, or turned into the body of a chat that the readers of chats take or
// refuse, with a place in the request for each image.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "config/base/json.h"
#include "handlers/chat_messages.h"
#include "handlers/request_fields.h"
#include "server/http/anthropic_input.h"
#include "server/http/ollama_input.h"
#include "server/http/responses_input.h"
#include "tests/fuzz/refusal.h"

namespace {

using Json = nlohmann::ordered_json;
using millrace::CheckRefusal;
using millrace::Require;
using millrace::StatusOr;
using millrace::server::http::ChatBody;

StatusOr<ChatBody> Turned(uint8_t kind, const Json& body) {
  namespace http = millrace::server::http;
  switch (kind % 4) {
    case 0: {
      // A conversation that goes on has its messages before the request's.
      Json history = Json::array();
      if (kind & 4) history.push_back({{"role", "user"}, {"content", "a"}});
      return http::ResponsesChatBody(body, std::move(history));
    }
    case 1:
      return http::AnthropicChatBody(body);
    case 2:
      return http::OllamaChatBody(body);
    default:
      return http::OllamaGenerateBody(body);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto body = millrace::ParseJson(
      std::string_view(reinterpret_cast<const char*>(data) + 1, size - 1));
  // Routes refuse what is no object before they look at it.
  if (!body.ok() || !body->is_object()) return 0;
  if (data[0] % 4 == 0) millrace::server::http::InputItems(*body);
  const auto chat = Turned(data[0], *body);
  if (!chat.ok()) {
    CheckRefusal(chat.status());
    return 0;
  }
  Require(chat->body != nullptr && chat->body->is_object(), "a body");
  const auto prompt =
      millrace::handlers::ReadChatPrompt(*chat->body, chat->images);
  if (prompt.ok()) {
    Require(prompt->images.size() == chat->images.size(),
            "each image has its place in the request");
    for (size_t i = 0; i < prompt->images.size(); ++i) {
      const auto& image = prompt->images[i];
      Require(image.path == chat->images[i].part, "and keeps it");
      Require(image.status.ok() == (image.bytes != nullptr), "bytes or why");
      if (!image.status.ok()) CheckRefusal(image.status);
    }
  } else {
    CheckRefusal(prompt.status());
  }
  const auto options = millrace::handlers::ReadGenerateOptions(
      *chat->body, millrace::handlers::FieldDialect::kChat);
  if (!options.ok()) CheckRefusal(options.status());
  return 0;
}
