// Bodies of Ollama's /api/chat and /api/generate as bodies of a chat. Pure.
// INVALID_ARGUMENT names the field of Ollama's body.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "config/base/status.h"
#include "server/http/chat_body.h"

namespace millrace::server::http {

// Images of a message stand before its text.
StatusOr<ChatBody> OllamaChatBody(const nlohmann::ordered_json& body);

// `prompt` as one message of the user; with `raw` the messages mean nothing.
StatusOr<ChatBody> OllamaGenerateBody(const nlohmann::ordered_json& body);

}  // namespace millrace::server::http
