// Bodies of Anthropic's Messages as bodies of a chat. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "config/base/status.h"
#include "server/http/chat_body.h"

namespace millrace::server::http {

// Of a request to create a message or to count its tokens. What is left out of
// the words of this API (min_p, seed, …) passes as it is, and the readers of
// chats check it. INVALID_ARGUMENT names the field of the message's body.
StatusOr<ChatBody> AnthropicChatBody(const nlohmann::ordered_json& body);

}  // namespace millrace::server::http
