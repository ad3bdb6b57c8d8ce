// Anthropic's Messages: POST /v1/messages and /v1/messages/count_tokens. A body
// is turned into that of a chat (messages, tools, sampling fields), which the
// readers of chats check; what is left out of the words of this API (min_p,
// seed, …) passes as it is.
// Source: docs.anthropic.com/en/api/messages, …/messages-streaming
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "config/base/json.h"
#include "handlers/chat_messages.h"
#include "handlers/json_fields.h"
#include "handlers/request_fields.h"
#include "server/error_map.h"
#include "server/http/completion_reply.h"
#include "server/http/gatekeeper.h"
#include "server/http/pool_work.h"
#include "server/http/routes.h"

namespace millrace::server::http {
namespace {

using Json = nlohmann::ordered_json;
using handlers::DeltaKind;

// --- The body of a chat ------------------------------------------------------

// Text of a string or of a list of text blocks.
StatusOr<std::string> ReadText(const Json& value, const std::string& path) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) {
    return handlers::WrongType(path, "a string or an array of text blocks",
                               value);
  }
  std::string text;
  for (size_t i = 0; i < value.size(); ++i) {
    const std::string at = path + "[" + std::to_string(i) + "]";
    const Json* type = handlers::FindField(value[i], "type");
    const Json* part = handlers::FindField(value[i], "text");
    if (type == nullptr || *type != "text" || part == nullptr ||
        !part->is_string()) {
      return InvalidArgument(at + " is " + handlers::Shown(value[i]) +
                             " but this model takes only {\"type\": \"text\", "
                             "\"text\": ...}")
          .At(at);
    }
    if (i > 0) text += '\n';
    text += part->get_ref<const std::string&>();
  }
  return text;
}

Json ToolMessage(const Json& block, std::string text) {
  return {{"role", "tool"},
          {"tool_call_id", block.value("tool_use_id", Json())},
          {"content", std::move(text)}};
}

// The blocks of one message as messages of a chat: results of tools stand for
// themselves, before the rest.
Status AddBlocks(const std::string& role, const Json& blocks,
                 const std::string& path, Json& messages) {
  Json message = {{"role", role}, {"content", nullptr}};
  std::string text, reasoning;
  bool has_text = false;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const Json& block = blocks[i];
    const std::string at = path + "[" + std::to_string(i) + "]";
    const Json* type = handlers::FindField(block, "type");
    const std::string kind =
        type != nullptr && type->is_string() ? type->get<std::string>() : "";
    if (kind == "text") {
      ASSIGN_OR_RETURN(const std::string part,
                       ReadText(Json::array({block}), at));
      text += (has_text ? "\n" : "") + part;
      has_text = true;
    } else if (kind == "tool_result" && role == "user") {
      const Json* content = handlers::FindField(block, "content");
      std::string result;
      if (content != nullptr) {
        ASSIGN_OR_RETURN(result, ReadText(*content, at + ".content"));
      }
      messages.push_back(ToolMessage(block, std::move(result)));
    } else if (kind == "tool_use" && role == "assistant") {
      message["tool_calls"].push_back(
          {{"id", block.value("id", Json())},
           {"type", "function"},
           {"function",
            {{"name", block.value("name", Json())},
             {"arguments", block.value("input", Json::object())}}}});
    } else if (kind == "thinking" && role == "assistant") {
      const Json* thought = handlers::FindField(block, "thinking");
      if (thought != nullptr && thought->is_string()) {
        reasoning += thought->get<std::string>();
      }
    } else if (kind != "redacted_thinking") {
      return InvalidArgument(
                 at + ".type is " +
                 (type == nullptr ? "missing" : handlers::Shown(*type)) +
                 " but a message of the " + role +
                 " may hold text, tool_use, tool_result and thinking blocks")
          .At(at + ".type");
    }
  }
  if (has_text) message["content"] = std::move(text);
  if (!reasoning.empty()) message["reasoning_content"] = std::move(reasoning);
  const bool only_results = !has_text && role == "user" && !blocks.empty();
  if (!only_results) messages.push_back(std::move(message));
  return OkStatus();
}

StatusOr<Json> ReadMessages(const Json& body) {
  Json messages = Json::array();
  if (const Json* system = handlers::FindField(body, "system")) {
    ASSIGN_OR_RETURN(std::string text, ReadText(*system, "system"));
    messages.push_back({{"role", "system"}, {"content", std::move(text)}});
  }
  ASSIGN_OR_RETURN(const Json* given, handlers::ReadArray(body, "messages"));
  if (given == nullptr || given->empty()) {
    return InvalidArgument("messages is missing or empty; send at least one")
        .At("messages");
  }
  for (size_t i = 0; i < given->size(); ++i) {
    const Json& message = (*given)[i];
    const std::string path = "messages[" + std::to_string(i) + "]";
    const Json* role = handlers::FindField(message, "role");
    const Json* content = handlers::FindField(message, "content");
    if (role == nullptr || (*role != "user" && *role != "assistant")) {
      return InvalidArgument(
                 path + ".role is " +
                 (role == nullptr ? "missing" : handlers::Shown(*role)) +
                 " but must be \"user\" or \"assistant\"; the system prompt "
                 "stands in system")
          .At(path + ".role");
    }
    if (content != nullptr && content->is_array()) {
      RETURN_IF_ERROR(AddBlocks(role->get<std::string>(), *content,
                                path + ".content", messages));
      continue;
    }
    if (content == nullptr || !content->is_string()) {
      return InvalidArgument(path +
                             ".content must be a string or an array of blocks")
          .At(path + ".content");
    }
    messages.push_back({{"role", *role}, {"content", *content}});
  }
  return messages;
}

StatusOr<Json> ReadTools(const Json& tools) {
  Json result = Json::array();
  for (size_t i = 0; i < tools.size(); ++i) {
    const Json& tool = tools[i];
    const std::string path = "tools[" + std::to_string(i) + "]";
    const Json* type = handlers::FindField(tool, "type");
    if (!tool.is_object() || (type != nullptr && *type != "custom")) {
      return InvalidArgument(path + " is " + handlers::Shown(tool) +
                             " but must be {\"name\": ..., \"input_schema\": "
                             "...}; the server runs no tools of its own")
          .At(path);
    }
    Json function = {{"name", tool.value("name", Json())}};
    if (tool.contains("description")) {
      function["description"] = tool["description"];
    }
    if (tool.contains("input_schema")) {
      function["parameters"] = tool["input_schema"];
    }
    if (tool.contains("strict")) function["strict"] = tool["strict"];
    result.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return result;
}

Status ReadToolChoice(const Json& choice, Json& chat) {
  const Json* type = handlers::FindField(choice, "type");
  if (type != nullptr && (*type == "auto" || *type == "none")) {
    chat["tool_choice"] = *type;
  } else if (type != nullptr && *type == "any") {
    chat["tool_choice"] = "required";
  } else if (type != nullptr && *type == "tool") {
    chat["tool_choice"] = {
        {"type", "function"},
        {"function", {{"name", choice.value("name", Json())}}}};
  } else {
    return InvalidArgument("tool_choice is " + handlers::Shown(choice) +
                           " but its type must be auto, any, tool or none")
        .At("tool_choice");
  }
  ASSIGN_OR_RETURN(const auto one,
                   handlers::ReadBool(choice, "disable_parallel_tool_use"));
  chat["parallel_tool_calls"] = !one.value_or(false);
  return OkStatus();
}

// Of a request to create a message or to count its tokens.
StatusOr<Json> ChatBody(const Json& body) {
  Json chat = body;
  for (const char* key : {"system", "metadata", "service_tier", "thinking",
                          "stop_sequences", "tools", "tool_choice"}) {
    chat.erase(key);
  }
  ASSIGN_OR_RETURN(chat["messages"], ReadMessages(body));
  ASSIGN_OR_RETURN(const Json* tools, handlers::ReadArray(body, "tools"));
  if (tools != nullptr) {
    ASSIGN_OR_RETURN(chat["tools"], ReadTools(*tools));
  }
  ASSIGN_OR_RETURN(const Json* choice,
                   handlers::ReadObject(body, "tool_choice"));
  if (choice != nullptr) RETURN_IF_ERROR(ReadToolChoice(*choice, chat));
  if (const Json* stop = handlers::FindField(body, "stop_sequences")) {
    chat["stop"] = *stop;
  }
  ASSIGN_OR_RETURN(const Json* thinking,
                   handlers::ReadObject(body, "thinking"));
  if (thinking != nullptr) {
    const Json* type = handlers::FindField(*thinking, "type");
    RETURN_IF_ERROR(
        handlers::ReadObject(body, "chat_template_kwargs").status());
    Json& kwargs = chat["chat_template_kwargs"];
    if (!kwargs.contains("enable_thinking")) {
      kwargs["enable_thinking"] = type != nullptr && *type != "disabled";
    }
  }
  return chat;
}

// --- The message that goes back ----------------------------------------------

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
  ASSIGN_OR_RETURN(const Json chat, ChatBody(body));
  handlers::GenerateRequest request;
  ASSIGN_OR_RETURN(request.prompt, handlers::ReadChatPrompt(chat));
  ASSIGN_OR_RETURN(request.options, handlers::ReadGenerateOptions(
                                        chat, handlers::FieldDialect::kChat));
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
  ASSIGN_OR_RETURN(const Json chat, ChatBody(body));
  ASSIGN_OR_RETURN(const handlers::ChatPrompt prompt,
                   handlers::ReadChatPrompt(chat));
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
