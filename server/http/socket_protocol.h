// Subprotocols of a WebSocket (Sec-WebSocket-Protocol; RFC 6455, section 1.9):
// the one that sessions speak, and the key of a browser, whose WebSocket can
// send no other header:
//
//   new WebSocket(url, ["millrace.session", "openai-insecure-api-key.KEY"])
//
// As OpenAI's Realtime API takes keys. The key is never the one that is chosen:
// responses name what is chosen, and proxies log it.
#pragma once

#include <string_view>

#include "server/http/message.h"

namespace millrace::server::http {

// The key that is offered so; empty: none. A view into `head`.
std::string_view OfferedKey(const HttpRequest& head);

// What the response answers; empty: no subprotocol of ours is offered.
std::string_view ChosenProtocol(const HttpRequest& head);

}  // namespace millrace::server::http
