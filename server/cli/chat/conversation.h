// What was said so far, and the next answer over the OpenAI API.
//
//   ASSIGN_OR_RETURN(auto talk, Conversation::Open(options));
//   auto ended = talk.Ask("Hello", [](std::string_view text) { ... }, {});
//
// A failed question leaves the conversation as it was; a stopped answer stays
// as far as it came. Not thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"
#include "server/cli/chat/chat_options.h"
#include "server/cli/chat/http_client.h"

namespace millrace::server {

// What the server says about a model.
struct ListedModel {
  std::string id = {};
  int64_t max_model_len = 0;  // tokens; 0: it does not tell
  bool has_sampling = false;  // requests may leave sampling out
  std::string sampling = {};  // "temperature 0.2, top_p 0.9"
};

class Conversation {
 public:
  // Takes the server's first model when none is given. NOT_FOUND when the
  // server has no such model, with the names of those it has.
  static StatusOr<Conversation> Open(const ChatOptions& options);
  Conversation(Conversation&&) noexcept;
  Conversation& operator=(Conversation&&) noexcept;
  ~Conversation();

  // Streams the answer into `on_text` and returns why it ended, in the API's
  // words: "stop", "length". CANCELLED when `cancelled` said so; the reason of
  // a refusal is the API's code.
  StatusOr<std::string> Ask(
      const std::string& question,
      const std::function<void(std::string_view)>& on_text,
      const std::function<bool()>& cancelled);

  void Clear();  // back to the system message
  // Replaces the system message; what was said stays. Empty: none.
  void SetSystem(const std::string& text);
  const std::string& system() const { return options_.system; }
  // Goes on with another model of the server.
  Status SetModel(const std::string& id);
  const ListedModel& model() const { return model_; }
  StatusOr<std::vector<ListedModel>> ListModels() const;
  // What temperature the next answer is drawn with, for people.
  std::string SamplingText() const;
  // The limit of an answer as the user set it; 0: none.
  int64_t max_tokens() const { return options_.max_tokens.value_or(0); }
  int64_t num_messages() const;
  // A JSON object with the model and the messages, as a request has them.
  // ALREADY_EXISTS rather than write over a file.
  Status Save(const std::string& path) const;

 private:
  Conversation(ChatOptions options, HttpUrl url);
  std::string RequestBody(const std::string& question) const;

  ChatOptions options_;
  HttpUrl url_;
  ListedModel model_;
  std::unique_ptr<nlohmann::ordered_json> messages_;  // array, never null
};

}  // namespace millrace::server
