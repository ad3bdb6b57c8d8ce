// Ollama's API: /api/chat, /api/generate, /api/tags, /api/show, /api/ps and
// /api/version. Streams are JSON, one a line. A model's name may end with
// ":latest". Errors are {"error": "…"}.
// Source: github.com/ollama/ollama/blob/main/docs/api.md
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "config/base/json.h"
#include "handlers/chat_messages.h"
#include "handlers/json_fields.h"
#include "handlers/request_fields.h"
#include "server/http/completion_reply.h"
#include "server/http/ollama_input.h"
#include "server/http/pool_work.h"
#include "server/http/routes.h"
#include "server/key_file.h"
#include "server/version.h"

namespace millrace::server::http {
namespace {

using Json = nlohmann::ordered_json;
using handlers::DeltaKind;

// RFC 3339, UTC.
std::string TimeText(std::time_t seconds) {
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[40];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

int64_t Nanoseconds(double seconds) {
  return seconds > 0 ? static_cast<int64_t>(seconds * 1e9) : 0;
}

// --- Answers -----------------------------------------------------------------

// /api/chat with `message`, /api/generate with `response`.
class OllamaForm final : public CompletionForm {
 public:
  OllamaForm(std::string model, bool chat)
      : model_(std::move(model)), chat_(chat) {}

  std::string Whole(const Completed& completed) override {
    Json calls = Json::array();
    for (const ToolCallText& call : completed.choice.calls) {
      calls.push_back(CallJson(call));
    }
    Json body = Line(completed.choice.text, completed.choice.reasoning, calls);
    AddEnd(completed, body);
    return DumpJson(body);
  }

  std::string Begin(const handlers::Usage&) override { return ""; }

  std::string Piece(const handlers::OutputDelta& delta,
                    const ChoiceText& choice) override {
    // A call is sent when it is whole: its arguments are an object here.
    if (delta.kind == DeltaKind::kToolCall) {
      return delta.call_name.empty() ? "" : SendCalls(choice, 1);
    }
    const bool thought = delta.kind == DeltaKind::kReasoning;
    return DumpJson(Line(thought ? "" : delta.text, thought ? delta.text : "",
                         Json::array())) +
           "\n";
  }

  std::string End(const Completed& completed) override {
    std::string lines = SendCalls(completed.choice, 0);
    Json last = Line("", "", Json::array());
    AddEnd(completed, last);
    return lines + DumpJson(last) + "\n";
  }

  std::string LateFailure(const Status& status) override {
    return OipErrorResponse(status).body + "\n";
  }
  HttpResponse Refusal(const Status& status) const override {
    return OipErrorResponse(status);
  }
  std::string_view stream_type() const override {
    return "application/x-ndjson";
  }

 private:
  static Json CallJson(const ToolCallText& call) {
    const auto arguments = ParseJson(call.arguments);
    const bool whole = arguments.ok() && arguments->is_object();
    return {{"id", call.id},
            {"function",
             {{"name", call.name},
              {"arguments", whole ? *arguments : Json::object()}}}};
  }

  // The calls that are whole and not sent; the last `open` ones are not whole.
  std::string SendCalls(const ChoiceText& choice, size_t open) {
    Json calls = Json::array();
    while (num_sent_ + open < choice.calls.size()) {
      calls.push_back(CallJson(choice.calls[num_sent_++]));
    }
    return calls.empty() ? "" : DumpJson(Line("", "", calls)) + "\n";
  }

  Json Line(const std::string& text, const std::string& thought,
            const Json& calls) const {
    Json line = {{"model", model_},
                 {"created_at", TimeText(std::time(nullptr))}};
    if (!chat_) {
      line["response"] = text;
      if (!thought.empty()) line["thinking"] = thought;
      line["done"] = false;
      return line;
    }
    line["message"] = {{"role", "assistant"}, {"content", text}};
    if (!thought.empty()) line["message"]["thinking"] = thought;
    if (!calls.empty()) line["message"]["tool_calls"] = calls;
    line["done"] = false;
    return line;
  }

  static void AddEnd(const Completed& completed, Json& line) {
    const Trace& trace = completed.trace;
    const double since_first =
        trace.Seconds(Stage::kAccepted, Stage::kFirstToken);
    const auto accepted =
        trace.stamps[static_cast<size_t>(Stage::kAccepted)].load(
            std::memory_order_relaxed);
    const double all =
        static_cast<double>(completed.now.time_since_epoch().count() -
                            accepted) *
        1e-9;
    line["done"] = true;
    line["done_reason"] =
        completed.choice.reason == handlers::FinishReason::kLength ? "length"
                                                                   : "stop";
    line["total_duration"] = Nanoseconds(all);
    line["load_duration"] = 0;
    line["prompt_eval_count"] = completed.usage.prompt_tokens;
    line["prompt_eval_duration"] =
        Nanoseconds(trace.Seconds(Stage::kScheduled, Stage::kFirstToken));
    line["eval_count"] = completed.usage.completion_tokens;
    line["eval_duration"] = Nanoseconds(all - since_first);
  }

  const std::string model_;  // as the client called it
  const bool chat_;
  size_t num_sent_ = 0;  // calls
};

// --- Requests ----------------------------------------------------------------

// The name without ":latest" where no model is called so.
StatusOr<ModelHandle> Borrow(const Site& site, Exchange& exchange,
                             const Json& body) {
  constexpr std::string_view kLatest = ":latest";
  Json named = {{"model", body.value("model", body.value("name", Json()))}};
  if (named["model"].is_string()) {
    auto name = named["model"].get<std::string>();
    if (name.ends_with(kLatest) && !site.services.repository->Find(name).ok()) {
      name.resize(name.size() - kLatest.size());
      named["model"] = std::move(name);
    }
  }
  return BorrowModel(site, exchange, named);
}

// 0 in any unit: Ollama unloads the model then.
bool WantsUnload(const Json& body) {
  const Json* keep = handlers::FindField(body, "keep_alive");
  if (keep == nullptr) return false;
  if (keep->is_number()) return *keep == 0;
  return *keep == "0" || *keep == "0s" || *keep == "0m" || *keep == "0h";
}

// Without a prompt, a client wants the model to be loaded: it is.
Status SendLoaded(const std::shared_ptr<Exchange>& exchange,
                  const Json& request, bool chat) {
  if (WantsUnload(request)) {
    return InvalidArgument(
               "keep_alive is 0, but this route unloads no model; send POST "
               "/v2/repository/models/{id}/unload")
        .At("keep_alive");
  }
  Json body = {{"model", exchange->facts().model},
               {"created_at", TimeText(std::time(nullptr))}};
  if (chat) {
    body["message"] = {{"role", "assistant"}, {"content", ""}};
  } else {
    body["response"] = "";
  }
  body["done"] = true;
  body["done_reason"] = "load";
  exchange->Send(JsonResponse(200, DumpJson(body)));
  return OkStatus();
}

// `chat` has the sampling fields in the words of a chat.
Status Start(const Site& site, const std::shared_ptr<Exchange>& exchange,
             const Json& body, const Json& chat, ModelHandle model,
             handlers::GenerateRequest request, bool is_chat) {
  ASSIGN_OR_RETURN(request.options, handlers::ReadGenerateOptions(
                                        chat, handlers::FieldDialect::kChat));
  ASSIGN_OR_RETURN(const auto stream, handlers::ReadBool(body, "stream"));
  const Json* name = handlers::FindField(body, "model");
  auto form = std::make_unique<OllamaForm>(name != nullptr && name->is_string()
                                               ? name->get<std::string>()
                                               : exchange->facts().model,
                                           is_chat);
  return StartCompletion(site, exchange, std::move(model), std::move(request),
                         std::move(form), stream.value_or(true));
}

Status Chat(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  ASSIGN_OR_RETURN(const Json body, ReadJsonBody(*exchange));
  ASSIGN_OR_RETURN(ModelHandle model, Borrow(site, *exchange, body));
  ASSIGN_OR_RETURN(const Json* messages, handlers::ReadArray(body, "messages"));
  if (messages == nullptr || messages->empty()) {
    return SendLoaded(exchange, body, true);
  }
  ASSIGN_OR_RETURN(const ChatBody chat, OllamaChatBody(body));
  handlers::GenerateRequest request;
  ASSIGN_OR_RETURN(request.prompt,
                   handlers::ReadChatPrompt(*chat.body, chat.images));
  return Start(site, exchange, body, *chat.body, std::move(model),
               std::move(request), true);
}

Status Generate(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  ASSIGN_OR_RETURN(const Json body, ReadJsonBody(*exchange));
  ASSIGN_OR_RETURN(ModelHandle model, Borrow(site, *exchange, body));
  ASSIGN_OR_RETURN(const ChatBody chat, OllamaGenerateBody(body));
  ASSIGN_OR_RETURN(const auto prompt, handlers::ReadString(body, "prompt"));
  if (!prompt || prompt->empty()) {
    return SendLoaded(exchange, body, false);
  }
  ASSIGN_OR_RETURN(const auto raw, handlers::ReadBool(body, "raw"));
  handlers::GenerateRequest request;
  if (raw.value_or(false)) {
    request.prompt = handlers::TextPrompt{*prompt};
  } else {
    ASSIGN_OR_RETURN(request.prompt,
                     handlers::ReadChatPrompt(*chat.body, chat.images));
  }
  return Start(site, exchange, body, *chat.body, std::move(model),
               std::move(request), false);
}

// --- Models ------------------------------------------------------------------

std::string SizeName(int64_t parameters) {
  char text[24];
  std::snprintf(text, sizeof text,
                parameters >= 1'000'000'000 ? "%.1fB" : "%.0fM",
                static_cast<double>(parameters) /
                    (parameters >= 1'000'000'000 ? 1e9 : 1e6));
  return text;
}

std::string Family(const Servable& servable) {
  constexpr std::string_view kOurs = "millrace_";
  const std::string& platform = servable.facts().platform;
  return platform.starts_with(kOurs) ? platform.substr(kOurs.size()) : platform;
}

Json Details(const Servable& servable) {
  const std::string family = Family(servable);
  return {{"parent_model", ""},
          {"format", "gguf"},
          {"family", family},
          {"families", Json::array({family})},
          {"parameter_size", SizeName(servable.text_facts()->num_parameters)},
          {"quantization_level", servable.text_facts()->quantization}};
}

// The `ollama` program shows the first twelve of its digits. Of the model's
// name, size and time, not of its bytes: weights are not read for a list.
std::string DigestOf(const Servable& servable) {
  const std::string text = servable.id() + '\n' +
                           std::to_string(servable.text_facts()->file_bytes) +
                           '\n' + std::to_string(servable.facts().created_unix);
  return HexText(Sha256(text));
}

Json Capabilities(const TextFacts& text) {
  Json capabilities = Json::array({"completion", "tools"});
  if (text.takes_images) capabilities.push_back("vision");
  return capabilities;
}

// The list of /api/tags, and of /api/ps, where all models run.
Json ModelList(const Site& site, const Exchange& exchange, bool running) {
  Json models = Json::array();
  for (const auto& servable : site.services.repository->List()) {
    const TextFacts* text = servable->text_facts();
    if (text == nullptr || !MayUse(exchange, servable->id())) continue;
    Json model = {{"name", servable->id()},
                  {"model", servable->id()},
                  {"modified_at", TimeText(servable->facts().created_unix)},
                  {"size", text->file_bytes},
                  {"digest", DigestOf(*servable)},
                  {"details", Details(*servable)}};
    if (running) {
      model["size_vram"] = 0;
      model["context_length"] = text->max_model_len;
    }
    models.push_back(std::move(model));
  }
  return {{"models", std::move(models)}};
}

Status Show(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  ASSIGN_OR_RETURN(const Json body, ReadJsonBody(*exchange));
  ASSIGN_OR_RETURN(const ModelHandle model, Borrow(site, *exchange, body));
  RETURN_IF_ERROR(model->ForText().status());
  const TextFacts& text = *model->text_facts();
  const std::string family = Family(*model);
  exchange->Send(JsonResponse(
      200,
      DumpJson(Json{{"modelfile", ""},
                    {"parameters", ""},
                    {"template", text.chat_template},
                    {"details", Details(*model)},
                    {"model_info",
                     {{"general.architecture", family},
                      {"general.parameter_count", text.num_parameters},
                      {family + ".context_length", text.max_model_len}}},
                    {"capabilities", Capabilities(text)},
                    {"modified_at", TimeText(model->facts().created_unix)}})));
  return OkStatus();
}

}  // namespace

void ServeOllamaChat(const Site& site,
                     const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, Chat, OipErrorResponse);
}

void ServeOllamaGenerate(const Site& site,
                         const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, Generate, OipErrorResponse);
}

void ServeOllamaShow(const Site& site,
                     const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, Show, OipErrorResponse);
}

void ServeOllamaTags(const Site& site,
                     const std::shared_ptr<Exchange>& exchange) {
  exchange->Send(
      JsonResponse(200, DumpJson(ModelList(site, *exchange, false))));
}

void ServeOllamaRunning(const Site& site,
                        const std::shared_ptr<Exchange>& exchange) {
  exchange->Send(JsonResponse(200, DumpJson(ModelList(site, *exchange, true))));
}

void ServeOllamaVersion(const Site&,
                        const std::shared_ptr<Exchange>& exchange) {
  exchange->Send(
      JsonResponse(200, DumpJson(Json{{"version", std::string(Version())}})));
}

}  // namespace millrace::server::http
