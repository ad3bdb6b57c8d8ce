// An error may come after the status line said 200, as an event of its own in
// the middle of the stream.
#include "server/cli/chat/conversation.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "config/base/json.h"
#include "config/base/utf8.h"
#include "server/cli/chat/sse_reader.h"

namespace millrace::server {
namespace {

using Json = nlohmann::ordered_json;
constexpr size_t kMaxErrorBytes = 64 << 10;

// The value under these keys, or null.
const Json* Find(const Json& value, std::initializer_list<const char*> keys) {
  const Json* at = &value;
  for (const char* key : keys) {
    if (!at->is_object()) return nullptr;
    const auto found = at->find(key);
    if (found == at->end()) return nullptr;
    at = &*found;
  }
  return at;
}

Status ErrorOf(int status, const std::string& body) {
  const auto parsed = ParseJson(body);
  const Json* message =
      parsed.ok() ? Find(*parsed, {"error", "message"}) : nullptr;
  const std::string text = message != nullptr && message->is_string()
                               ? message->get<std::string>()
                               : ReplaceInvalidUtf8(body.substr(0, 200));
  if (status == 401) return Unauthenticated(text);
  return Unavailable(text.empty() ? "the server answered with status " +
                                        std::to_string(status)
                                  : text);
}

// A whole answer that is no stream.
StatusOr<std::string> Get(const HttpUrl& url, const ChatOptions& options,
                          const std::string& target) {
  std::string body;
  HttpHooks hooks;
  hooks.on_body = [&body](int, std::string_view bytes) {
    if (body.size() < kMaxErrorBytes * 16) body += bytes;
  };
  ASSIGN_OR_RETURN(
      const int status,
      Exchange(url, {.target = target, .api_key = options.api_key}, hooks));
  if (status != 200) return ErrorOf(status, body);
  return body;
}

// The text an event brings; empty for those without.
StatusOr<std::string> TextOfEvent(const std::string& data) {
  ASSIGN_OR_RETURN(const Json event, ParseJson(data));
  if (Find(event, {"error"}) != nullptr) return ErrorOf(200, data);
  const Json* choices = Find(event, {"choices"});
  if (choices == nullptr || !choices->is_array() || choices->empty()) {
    return std::string();
  }
  const Json* content = Find((*choices)[0], {"delta", "content"});
  return content != nullptr && content->is_string()
             ? content->get<std::string>()
             : std::string();
}

Json Message(const char* role, const std::string& content) {
  Json message = Json::object();
  message["role"] = role;
  message["content"] = content;
  return message;
}

}  // namespace

Conversation::Conversation(ChatOptions options, HttpUrl url)
    : options_(std::move(options)),
      url_(std::move(url)),
      messages_(std::make_unique<Json>()) {
  Reset();
}
Conversation::Conversation(Conversation&&) noexcept = default;
Conversation& Conversation::operator=(Conversation&&) noexcept = default;
Conversation::~Conversation() = default;

StatusOr<Conversation> Conversation::Open(const ChatOptions& options) {
  ASSIGN_OR_RETURN(HttpUrl url, ParseHttpUrl(options.url));
  ChatOptions complete = options;
  if (complete.model.empty()) {
    ASSIGN_OR_RETURN(const std::string body, Get(url, options, "/v1/models"));
    const auto list = ParseJson(body);
    const Json* models = list.ok() ? Find(*list, {"data"}) : nullptr;
    if (models == nullptr || !models->is_array() || models->empty() ||
        Find((*models)[0], {"id"}) == nullptr ||
        !(*models)[0]["id"].is_string()) {
      return FailedPrecondition("the server at " + url.authority +
                                " lists no model; name one with --model");
    }
    complete.model = (*models)[0]["id"].get<std::string>();
  }
  return Conversation(std::move(complete), std::move(url));
}

void Conversation::Reset() {
  *messages_ = Json::array();
  if (!options_.system.empty()) {
    messages_->push_back(Message("system", options_.system));
  }
}

Status Conversation::Ask(const std::string& question,
                         const std::function<void(std::string_view)>& on_text,
                         const std::function<bool()>& cancelled) {
  Json request = Json::object();
  request["model"] = options_.model;
  request["messages"] = *messages_;
  request["messages"].push_back(Message("user", question));
  request["stream"] = true;
  if (options_.max_tokens) request["max_tokens"] = *options_.max_tokens;
  if (options_.temperature) request["temperature"] = *options_.temperature;

  SseReader reader;
  std::string answer, error_body;
  Status failure;
  bool done = false;
  HttpHooks hooks;
  hooks.cancelled = [&] { return !failure.ok() || (cancelled && cancelled()); };
  hooks.on_body = [&](int status, std::string_view bytes) {
    if (status != 200) {
      if (error_body.size() < kMaxErrorBytes) error_body += bytes;
      return;
    }
    for (const std::string& data : reader.Feed(bytes)) {
      if (data == "[DONE]") done = true;
      if (done || !failure.ok()) return;
      auto text = TextOfEvent(data);
      if (!text.ok()) {
        failure = text.status();
      } else if (!text->empty()) {
        answer += *text;
        on_text(*text);
      }
    }
  };
  const StatusOr<int> status = Exchange(url_,
                                        {.method = "POST",
                                         .target = "/v1/chat/completions",
                                         .body = DumpJson(request),
                                         .api_key = options_.api_key},
                                        hooks);
  if (!failure.ok()) return failure;
  if (!status.ok() && status.status().code() != StatusCode::kCancelled) {
    return status.status();
  }
  if (status.ok() && *status != 200) return ErrorOf(*status, error_body);
  if (status.ok() && !done) {
    return Unavailable("the answer ended before it was complete");
  }
  if (!answer.empty()) {
    messages_->push_back(Message("user", question));
    messages_->push_back(Message("assistant", answer));
  }
  return status.ok() ? OkStatus() : status.status();
}

}  // namespace millrace::server
