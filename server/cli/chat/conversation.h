// What was said so far, and the next answer over the OpenAI API.
//
//   ASSIGN_OR_RETURN(auto talk, Conversation::Open(options));
//   Status status = talk.Ask("Hello", [](std::string_view text) { ... }, {});
//
// A failed question leaves the conversation as it was; a stopped answer stays
// as far as it came. Not thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "config/base/status.h"
#include "server/cli/chat/chat_options.h"
#include "server/cli/chat/http_client.h"

namespace millrace::server {

class Conversation {
 public:
  // Asks the server for its first model when none is given.
  static StatusOr<Conversation> Open(const ChatOptions& options);
  Conversation(Conversation&&) noexcept;
  Conversation& operator=(Conversation&&) noexcept;
  ~Conversation();

  // Streams the answer into `on_text`. CANCELLED when `cancelled` said so.
  Status Ask(const std::string& question,
             const std::function<void(std::string_view)>& on_text,
             const std::function<bool()>& cancelled);
  void Reset();  // back to the system message

  const std::string& model() const { return options_.model; }

 private:
  Conversation(ChatOptions options, HttpUrl url);

  ChatOptions options_;
  HttpUrl url_;
  std::unique_ptr<nlohmann::ordered_json> messages_;  // array, never null
};

}  // namespace millrace::server
