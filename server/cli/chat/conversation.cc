// An error may come after the status line said 200, as an event of its own in
// the middle of the stream.
#include "server/cli/chat/conversation.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "config/base/json.h"
#include "config/base/utf8.h"
#include "config/task_settings.h"
#include "server/cli/chat/sse_reader.h"

namespace millrace::server {
namespace {

using Json = nlohmann::ordered_json;
constexpr size_t kMaxErrorBytes = 64 << 10;
// Where neither the user nor the model's makers say anything. A small model
// drawn from at temperature 1 answers with nonsense.
constexpr double kTemperature = 0.7;
constexpr double kTopP = 0.9;

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

Status ErrorOf(int status, const std::string& body, bool had_key) {
  const auto parsed = ParseJson(body);
  const Json* message =
      parsed.ok() ? Find(*parsed, {"error", "message"}) : nullptr;
  std::string text = message != nullptr && message->is_string()
                         ? message->get<std::string>()
                         : ReplaceInvalidUtf8(Shortened(body, 200));
  if (status == 401) {
    return Unauthenticated(
        had_key ? "the server refused this API key; check --api-key or "
                  "MILLRACE_API_KEY"
                : "the server needs an API key; give it with --api-key KEY or "
                  "in MILLRACE_API_KEY");
  }
  const Json* code = parsed.ok() ? Find(*parsed, {"error", "code"}) : nullptr;
  return Unavailable(text.empty() ? "the server answered with status " +
                                        std::to_string(status)
                                  : text)
      .Because(code != nullptr && code->is_string() ? code->get<std::string>()
                                                    : "");
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
  if (status == 404) return NotFound("no " + target);
  if (status != 200) return ErrorOf(status, body, !options.api_key.empty());
  return body;
}

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", value);
  return text;
}

ListedModel ModelOf(const Json& entry) {
  ListedModel model;
  if (const Json* id = Find(entry, {"id"}); id != nullptr && id->is_string()) {
    model.id = id->get<std::string>();
  }
  if (const Json* length = Find(entry, {"max_model_len"});
      length != nullptr && length->is_number_integer()) {
    model.max_model_len = length->get<int64_t>();
  }
  const Json* sampling = Find(entry, {"default_sampling_params"});
  if (sampling == nullptr || !sampling->is_object()) return model;
  for (const auto& [name, value] : sampling->items()) {
    if (!value.is_number()) continue;
    model.sampling += model.sampling.empty() ? "" : ", ";
    model.sampling += name + " " + Number(value.get<double>());
  }
  model.has_sampling =
      sampling->contains("temperature") || sampling->contains("top_p");
  return model;
}

StatusOr<std::vector<ListedModel>> List(const HttpUrl& url,
                                        const ChatOptions& options) {
  StatusOr<std::string> body = Get(url, options, "/v1/models");
  std::vector<ListedModel> models;
  if (body.status().code() == StatusCode::kNotFound) return models;
  RETURN_IF_ERROR(body.status());
  const auto list = ParseJson(*body);
  const Json* data = list.ok() ? Find(*list, {"data"}) : nullptr;
  if (data == nullptr || !data->is_array()) return models;
  for (const Json& entry : *data) {
    // It makes vectors or scores of texts, no answers.
    const Json* task = Find(entry, {"task"});
    if (task != nullptr && task->is_string() &&
        config::TaskFromName(task->get<std::string>()).ok()) {
      continue;
    }
    models.push_back(ModelOf(entry));
    if (models.back().id.empty()) models.pop_back();
  }
  return models;
}

// The model of that id, or the first. A server that lists nothing may still
// know the one that was asked for.
StatusOr<ListedModel> Choose(const HttpUrl& url, const std::string& id,
                             const std::vector<ListedModel>& models) {
  if (models.empty() && id.empty()) {
    return FailedPrecondition(
        "the server at " + url.authority +
        " lists no model that generates text; serve a language model, or name "
        "with --model one that it does not list");
  }
  if (models.empty()) return ListedModel{.id = id};
  if (id.empty()) return models.front();
  std::string names;
  for (const ListedModel& model : models) {
    if (model.id == id) return model;
    names.append(names.empty() ? "" : ", ").append(model.id);
  }
  return NotFound("the server at " + url.authority + " has no model '" + id +
                  "'; it has " + names);
}

struct Event {
  std::string text;
  std::string finish_reason;  // empty in all but the last
};

StatusOr<Event> ReadEvent(const std::string& data) {
  ASSIGN_OR_RETURN(const Json json, ParseJson(data));
  if (Find(json, {"error"}) != nullptr) return ErrorOf(200, data, false);
  Event event;
  const Json* choices = Find(json, {"choices"});
  if (choices == nullptr || !choices->is_array() || choices->empty()) {
    return event;
  }
  const Json* content = Find((*choices)[0], {"delta", "content"});
  if (content != nullptr && content->is_string()) {
    event.text = content->get<std::string>();
  }
  const Json* reason = Find((*choices)[0], {"finish_reason"});
  if (reason != nullptr && reason->is_string()) {
    event.finish_reason = reason->get<std::string>();
  }
  return event;
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
  Clear();
}
Conversation::Conversation(Conversation&&) noexcept = default;
Conversation& Conversation::operator=(Conversation&&) noexcept = default;
Conversation::~Conversation() = default;

StatusOr<Conversation> Conversation::Open(const ChatOptions& options) {
  ASSIGN_OR_RETURN(HttpUrl url, ParseHttpUrl(options.url));
  url.tls = options.tls;
  // The base URL of OpenAI's clients; routes have /v1 of their own.
  if (url.prefix.ends_with("/v1")) url.prefix.resize(url.prefix.size() - 3);
  Conversation talk(options, std::move(url));
  RETURN_IF_ERROR(talk.SetModel(options.model));
  return talk;
}

void Conversation::Clear() {
  *messages_ = Json::array();
  if (!options_.system.empty()) {
    messages_->push_back(Message("system", options_.system));
  }
}

void Conversation::SetSystem(const std::string& text) {
  const bool had = !options_.system.empty();
  options_.system = text;
  if (had) messages_->erase(0);
  if (!text.empty()) {
    messages_->insert(messages_->begin(), Message("system", text));
  }
}

Status Conversation::SetModel(const std::string& id) {
  ASSIGN_OR_RETURN(const std::vector<ListedModel> models, ListModels());
  ASSIGN_OR_RETURN(model_, Choose(url_, id, models));
  return OkStatus();
}

StatusOr<std::vector<ListedModel>> Conversation::ListModels() const {
  return List(url_, options_);
}

std::string Conversation::SamplingText() const {
  std::string text;
  if (options_.temperature) {
    text = "temperature " + Number(*options_.temperature);
  }
  if (options_.top_p) {
    text += (text.empty() ? "top_p " : ", top_p ") + Number(*options_.top_p);
  }
  if (!text.empty()) return text;
  if (model_.has_sampling) return model_.sampling;
  return "temperature " + Number(kTemperature) + ", top_p " + Number(kTopP);
}

int64_t Conversation::num_messages() const {
  return static_cast<int64_t>(messages_->size());
}

Status Conversation::Save(const std::string& path) const {
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) {
    return AlreadyExists("'" + path + "' exists; name another file");
  }
  Json document = Json::object();
  document["model"] = model_.id;
  document["messages"] = *messages_;
  std::ofstream out(path, std::ios::binary);
  out << document.dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
  out.flush();
  if (out) return OkStatus();
  return FailedPrecondition("'" + path + "' cannot be written");
}

// Fields that neither the user nor the model's makers decide are ours.
std::string Conversation::RequestBody(const std::string& question) const {
  Json request = Json::object();
  request["model"] = model_.id;
  request["messages"] = *messages_;
  request["messages"].push_back(Message("user", question));
  request["stream"] = true;
  if (options_.max_tokens) request["max_tokens"] = *options_.max_tokens;
  std::optional<double> temperature = options_.temperature;
  std::optional<double> top_p = options_.top_p;
  if (!temperature && !top_p && !model_.has_sampling) {
    temperature = kTemperature;
    top_p = kTopP;
  }
  if (temperature) request["temperature"] = *temperature;
  if (top_p) request["top_p"] = *top_p;
  return DumpJson(request);
}

StatusOr<std::string> Conversation::Ask(
    const std::string& question,
    const std::function<void(std::string_view)>& on_text,
    const std::function<bool()>& cancelled) {
  SseReader reader;
  std::string answer, error_body, finish_reason;
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
      auto event = ReadEvent(data);
      if (!event.ok()) {
        failure = event.status();
        return;
      }
      if (!event->finish_reason.empty()) finish_reason = event->finish_reason;
      if (event->text.empty()) continue;
      answer += event->text;
      on_text(event->text);
    }
  };
  const StatusOr<int> status = Exchange(url_,
                                        {.method = "POST",
                                         .target = "/v1/chat/completions",
                                         .body = RequestBody(question),
                                         .api_key = options_.api_key},
                                        hooks);
  if (!failure.ok()) return failure;
  if (!status.ok() && status.status().code() != StatusCode::kCancelled) {
    return status.status();
  }
  if (status.ok() && *status != 200) {
    return ErrorOf(*status, error_body, !options_.api_key.empty());
  }
  if (status.ok() && !done) {
    return Unavailable("the answer ended before it was complete");
  }
  if (!answer.empty()) {
    messages_->push_back(Message("user", question));
    messages_->push_back(Message("assistant", answer));
  }
  if (!status.ok()) return status.status();
  return finish_reason;
}

}  // namespace millrace::server
