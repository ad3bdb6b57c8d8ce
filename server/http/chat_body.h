// A request of another API in the words of a chat.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "handlers/chat_messages.h"

namespace millrace::server::http {

struct ChatBody {
  // `messages`, `tools`, `tool_choice` and sampling fields as a chat has them.
  // Never null.
  std::shared_ptr<const nlohmann::ordered_json> body;
  // Where its images stand in the request, in the order of the messages.
  std::vector<handlers::ImagePlace> images = {};
};

}  // namespace millrace::server::http
