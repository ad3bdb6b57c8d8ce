// Bodies of OpenAI's Responses as bodies of a chat. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "config/base/status.h"
#include "server/http/chat_body.h"

namespace millrace::server::http {

// `history`: chat messages of the previous response, an array.
// INVALID_ARGUMENT names the field of the response's body.
StatusOr<ChatBody> ResponsesChatBody(const nlohmann::ordered_json& body,
                                     nlohmann::ordered_json history);

// The request's own items, for input_items.
nlohmann::ordered_json InputItems(const nlohmann::ordered_json& body);

}  // namespace millrace::server::http
