// Anthropic's Messages: POST /v1/messages and /v1/messages/count_tokens.
// Source: docs.anthropic.com/en/api/messages, …/messages-streaming
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "config/base/json.h"
#include "handlers/chat_messages.h"
#include "handlers/json_fields.h"
#include "handlers/request_fields.h"
#include "server/error_map.h"
#include "server/http/anthropic_input.h"
#include "server/http/completion_reply.h"
#include "server/http/pool_work.h"
#include "server/http/routes.h"
#include "server/request_id.h"

namespace millrace::server::http {
namespace {

using Json = nlohmann::ordered_json;
using handlers::DeltaKind;

std::string_view ErrorType(int http_status) {
  switch (http_status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    case 504:
      return "timeout_error";
    default:
      return http_status < 500 ? "invalid_request_error" : "api_error";
  }
}

std::string ErrorBody(const Status& status) {
  return DumpJson(Json{{"type", "error"},
                       {"error",
                        {{"type", std::string(ErrorType(HttpStatusOf(status)))},
                         {"message", std::string(status.message())}}}});
}

Json UsageJsonOf(const handlers::Usage& usage) {
  return {{"input_tokens", usage.prompt_tokens - usage.cached_tokens},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", usage.cached_tokens},
          {"output_tokens", usage.completion_tokens}};
}

// stop_reason and stop_sequence.
Json StopJson(const ChoiceText& choice) {
  const auto* text = std::get_if<std::string>(&choice.stop_reason);
  const char* reason = choice.reason == handlers::FinishReason::kLength
                           ? "max_tokens"
                       : text != nullptr       ? "stop_sequence"
                       : !choice.calls.empty() ? "tool_use"
                                               : "end_turn";
  return {{"stop_reason", reason},
          {"stop_sequence", text != nullptr ? Json(*text) : Json()}};
}

class MessageForm final : public CompletionForm {
 public:
  explicit MessageForm(std::string model)
      : id_("msg_" + RandomHex(24)), model_(std::move(model)) {}

  std::string Whole(const Completed& completed) override {
    const ChoiceText& choice = completed.choice;
    Json content = Json::array();
    if (!choice.reasoning.empty()) {
      content.push_back({{"type", "thinking"},
                         {"thinking", choice.reasoning},
                         {"signature", ""}});
    }
    if (!choice.text.empty()) {
      content.push_back({{"type", "text"}, {"text", choice.text}});
    }
    for (const ToolCallText& call : choice.calls) {
      const auto input = ParseJson(call.arguments);
      content.push_back(
          {{"type", "tool_use"},
           {"id", call.id},
           {"name", call.name},
           {"input",
            input.ok() && input->is_object() ? *input : Json::object()}});
    }
    return DumpJson(Message(std::move(content), StopJson(choice),
                            UsageJsonOf(completed.usage)));
  }

  std::string Begin(const handlers::Usage& prompt) override {
    return Event("message_start",
                 {{"message", Message(Json::array(),
                                      {{"stop_reason", nullptr},
                                       {"stop_sequence", nullptr}},
                                      UsageJsonOf(prompt))}});
  }

  std::string Piece(const handlers::OutputDelta& delta,
                    const ChoiceText&) override {
    std::string events;
    if (!open_ || *open_ != delta.kind || !delta.call_name.empty()) {
      events = CloseBlock();
      open_ = delta.kind;
      events += Event("content_block_start",
                      {{"index", index_}, {"content_block", Empty(delta)}});
    }
    if (!delta.text.empty()) {
      events += Event("content_block_delta",
                      {{"index", index_}, {"delta", Delta(delta)}});
    }
    return events;
  }

  std::string End(const Completed& completed) override {
    return CloseBlock() +
           Event("message_delta", {{"delta", StopJson(completed.choice)},
                                   {"usage", UsageJsonOf(completed.usage)}}) +
           Event("message_stop", Json::object());
  }

  std::string LateFailure(const Status& status) override {
    return NamedEvent("error", ErrorBody(status));
  }
  HttpResponse Refusal(const Status& status) const override {
    return AnthropicErrorResponse(status);
  }
  std::string_view call_id_prefix() const override { return "toolu_"; }

 private:
  static std::string Event(std::string_view name, Json fields) {
    Json event = {{"type", std::string(name)}};
    event.update(fields);
    return NamedEvent(name, DumpJson(event));
  }

  static Json Empty(const handlers::OutputDelta& delta) {
    switch (delta.kind) {
      case DeltaKind::kReasoning:
        return {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}};
      case DeltaKind::kToolCall:
        return {{"type", "tool_use"},
                {"id", delta.call_id},
                {"name", delta.call_name},
                {"input", Json::object()}};
      case DeltaKind::kContent:
        break;
    }
    return {{"type", "text"}, {"text", ""}};
  }

  static Json Delta(const handlers::OutputDelta& delta) {
    switch (delta.kind) {
      case DeltaKind::kReasoning:
        return {{"type", "thinking_delta"}, {"thinking", delta.text}};
      case DeltaKind::kToolCall:
        return {{"type", "input_json_delta"}, {"partial_json", delta.text}};
      case DeltaKind::kContent:
        break;
    }
    return {{"type", "text_delta"}, {"text", delta.text}};
  }

  std::string CloseBlock() {
    if (!open_) return "";
    open_.reset();
    return Event("content_block_stop", {{"index", index_++}});
  }

  Json Message(Json content, const Json& stop, Json usage) const {
    Json message = {{"id", id_},
                    {"type", "message"},
                    {"role", "assistant"},
                    {"model", model_},
                    {"content", std::move(content)}};
    message.update(stop);
    message["usage"] = std::move(usage);
    return message;
  }

  const std::string id_;
  const std::string model_;
  std::optional<DeltaKind> open_;  // the block that is being written
  int index_ = 0;                  // of that block, or of the next one
};

Status Messages(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  ASSIGN_OR_RETURN(const Json body, ReadJsonBody(*exchange));
  if (handlers::FindField(body, "max_tokens") == nullptr) {
    return InvalidArgument("max_tokens is missing; this API requires it")
        .At("max_tokens");
  }
  ASSIGN_OR_RETURN(const ChatBody chat, AnthropicChatBody(body));
  handlers::GenerateRequest request;
  ASSIGN_OR_RETURN(request.prompt,
                   handlers::ReadChatPrompt(*chat.body, chat.images));
  ASSIGN_OR_RETURN(
      request.options,
      handlers::ReadGenerateOptions(*chat.body, handlers::FieldDialect::kChat));
  if (request.options.n > 1) {
    return InvalidArgument("n is not a field of this API; leave it out")
        .At("n");
  }
  ASSIGN_OR_RETURN(const auto stream, handlers::ReadBool(body, "stream"));
  ASSIGN_OR_RETURN(ModelHandle model, BorrowModel(site, *exchange, body));
  auto form = std::make_unique<MessageForm>(exchange->facts().model);
  return StartCompletion(site, exchange, std::move(model), std::move(request),
                         std::move(form), stream.value_or(false));
}

Status CountTokens(const Site& site,
                   const std::shared_ptr<Exchange>& exchange) {
  ASSIGN_OR_RETURN(const Json body, ReadJsonBody(*exchange));
  ASSIGN_OR_RETURN(const ChatBody chat, AnthropicChatBody(body));
  ASSIGN_OR_RETURN(const handlers::ChatPrompt prompt,
                   handlers::ReadChatPrompt(*chat.body, chat.images));
  ASSIGN_OR_RETURN(ModelHandle model, BorrowModel(site, *exchange, body));
  ASSIGN_OR_RETURN(const handlers::GenerateHandler* handler, model->ForText());
  ASSIGN_OR_RETURN(const handlers::TokenizedText text,
                   handler->TokenizeChat(prompt));
  exchange->Send(
      JsonResponse(200, DumpJson(Json{{"input_tokens", text.ids.size()}})));
  return OkStatus();
}

}  // namespace

HttpResponse AnthropicErrorResponse(const Status& status) {
  HttpResponse response = ErrorResponse(status);
  response.body = ErrorBody(status);
  return response;
}

void ServeMessages(const Site& site,
                   const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, Messages, AnthropicErrorResponse);
}

void ServeCountTokens(const Site& site,
                      const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, CountTokens, AnthropicErrorResponse);
}

}  // namespace millrace::server::http
