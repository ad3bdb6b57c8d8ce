// OpenAI's Responses: POST /v1/responses, GET and DELETE /v1/responses/{id},
// GET /v1/responses/{id}/input_items. A response is a chat whose output is a
// list of items; kept ones can be gone on from by previous_response_id.
// Source: platform.openai.com/docs/api-reference/responses,
// …/responses-streaming
#include <ctime>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "config/base/json.h"
#include "handlers/chat_messages.h"
#include "handlers/json_fields.h"
#include "handlers/request_fields.h"
#include "server/error_map.h"
#include "server/http/completion_reply.h"
#include "server/http/openai_shapes.h"
#include "server/http/pool_work.h"
#include "server/http/response_store.h"
#include "server/http/responses_input.h"
#include "server/http/routes.h"
#include "server/request_id.h"

namespace millrace::server::http {
namespace {

using Json = nlohmann::ordered_json;
using handlers::DeltaKind;

// What is kept beside the response itself.
struct ToKeep {
  Json conversation = Json::array();  // without its output
  Json input = Json::array();
  bool wanted = true;   // `store`
  uint32_t tenant = 0;  // the number of the caller's
};

// One element of `output` as it grows.
struct Item {
  DeltaKind kind;
  std::string id;
  std::string text;               // or arguments, or the reasoning
  Json logprobs = Json::array();  // of a text, when asked for
  std::string name = {};
  std::string call_id = {};
};

Json LogprobsOf(const std::vector<handlers::TokenLogprobs>& tokens) {
  if (tokens.empty()) return Json::array();
  return std::move(Json::parse(ChatLogprobs(tokens))["content"]);
}
void Append(const Json& tokens, Json& to) {
  for (const Json& token : tokens) to.push_back(token);
}
Json TextPart(const Item& item) {
  return {{"type", "output_text"},
          {"text", item.text},
          {"annotations", Json::array()},
          {"logprobs", item.logprobs}};
}
Json ReasoningPart(const std::string& text) {
  return {{"type", "reasoning_text"}, {"text", text}};
}

Json ItemJson(const Item& item, const char* status, bool with_content) {
  switch (item.kind) {
    case DeltaKind::kReasoning: {
      Json content = Json::array();
      if (with_content) content.push_back(ReasoningPart(item.text));
      return {{"id", item.id},
              {"type", "reasoning"},
              {"summary", Json::array()},
              {"content", std::move(content)},
              {"status", status}};
    }
    case DeltaKind::kToolCall:
      return {{"id", item.id},           {"type", "function_call"},
              {"status", status},        {"arguments", item.text},
              {"call_id", item.call_id}, {"name", item.name}};
    case DeltaKind::kContent:
      break;
  }
  Json content = Json::array();
  if (with_content) content.push_back(TextPart(item));
  return {{"id", item.id},
          {"type", "message"},
          {"status", status},
          {"role", "assistant"},
          {"content", std::move(content)}};
}

Item NewItem(DeltaKind kind, std::string text = {}) {
  const char* prefix = kind == DeltaKind::kContent     ? "msg_"
                       : kind == DeltaKind::kReasoning ? "rs_"
                                                       : "fc_";
  return {.kind = kind, .id = prefix + RandomHex(48), .text = std::move(text)};
}

Json UsageOf(const handlers::Usage& usage) {
  return {
      {"input_tokens", usage.prompt_tokens},
      {"input_tokens_details",
       {{"cached_tokens", usage.cached_tokens}, {"cache_write_tokens", 0}}},
      {"output_tokens", usage.completion_tokens},
      {"output_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}},
      {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
}

class ResponseForm final : public CompletionForm {
 public:
  // `site` outlives the form.
  ResponseForm(const Site& site, Json response, ToKeep keep)
      : site_(site.shared_from_this()),
        response_(std::move(response)),
        keep_(std::move(keep)) {}

  std::string Whole(const Completed& completed) override {
    const ChoiceText& choice = completed.choice;
    if (!choice.reasoning.empty()) {
      items_.push_back(NewItem(DeltaKind::kReasoning, choice.reasoning));
    }
    if (!choice.text.empty() || choice.calls.empty()) {
      items_.push_back(NewItem(DeltaKind::kContent, choice.text));
      items_.back().logprobs = LogprobsOf(choice.text_logprobs);
    }
    for (const ToolCallText& call : choice.calls) {
      items_.push_back(NewItem(DeltaKind::kToolCall, call.arguments));
      items_.back().name = call.name;
      items_.back().call_id = call.id;
    }
    return Finish(completed);
  }

  std::string Begin(const handlers::Usage&) override {
    std::string events = Event("response.created", {{"response", response_}});
    events += Event("response.in_progress", {{"response", response_}});
    return events;
  }

  std::string Piece(const handlers::OutputDelta& delta,
                    const ChoiceText&) override {
    // Tokens without a text begin no item: those of a text to come are told
    // with it, others (of a call's end) are told nowhere.
    if (delta.text.empty() && delta.call_name.empty() &&
        (!is_open_ || items_.back().kind != delta.kind)) {
      if (!is_open_ && delta.kind == DeltaKind::kContent) {
        Append(LogprobsOf(delta.logprobs), early_logprobs_);
      }
      return "";
    }
    std::string events;
    if (!is_open_ || items_.back().kind != delta.kind ||
        !delta.call_name.empty()) {
      events = CloseItem();
      events += OpenItem(delta);
    }
    Item& item = items_.back();
    item.text += delta.text;
    if (delta.text.empty() && delta.logprobs.empty()) return events;
    Json fields = Place(item);
    fields["delta"] = delta.text;
    if (item.kind == DeltaKind::kContent) {
      Json logprobs = std::exchange(early_logprobs_, Json::array());
      Append(LogprobsOf(delta.logprobs), logprobs);
      Append(logprobs, item.logprobs);
      fields["logprobs"] = std::move(logprobs);
    }
    return events + Event("response." + Name(item.kind) + ".delta", fields);
  }

  std::string End(const Completed& completed) override {
    std::string events;
    if (items_.empty()) {  // a response has an item
      handlers::OutputDelta empty;
      events = OpenItem(empty);
    }
    events += CloseItem();
    Finish(completed);
    const bool whole =
        completed.choice.reason != handlers::FinishReason::kLength;
    return events + Event(whole ? "response.completed" : "response.incomplete",
                          {{"response", response_}});
  }

  std::string LateFailure(const Status& status) override {
    response_["status"] = "failed";
    response_["error"] = {{"code", "server_error"},
                          {"message", std::string(status.message())}};
    return Event("response.failed", {{"response", response_}});
  }
  HttpResponse Refusal(const Status& status) const override {
    return ErrorResponse(status);
  }

 private:
  static std::string Name(DeltaKind kind) {
    return kind == DeltaKind::kContent     ? "output_text"
           : kind == DeltaKind::kReasoning ? "reasoning_text"
                                           : "function_call_arguments";
  }

  std::string Event(const std::string& name, Json fields) {
    Json event = {{"type", name}, {"sequence_number", sequence_++}};
    event.update(fields);
    return NamedEvent(name, DumpJson(event));
  }

  // Which item, and which part of its content.
  Json Place(const Item& item) const {
    Json place = {{"item_id", item.id}, {"output_index", items_.size() - 1}};
    if (item.kind != DeltaKind::kToolCall) place["content_index"] = 0;
    return place;
  }
  static Json Part(const Item& item) {
    return item.kind == DeltaKind::kContent ? TextPart(item)
                                            : ReasoningPart(item.text);
  }

  std::string OpenItem(const handlers::OutputDelta& delta) {
    items_.push_back(NewItem(delta.kind));
    Item& item = items_.back();
    item.name = delta.call_name;
    item.call_id = delta.call_id;
    is_open_ = true;
    std::string events =
        Event("response.output_item.added",
              {{"output_index", items_.size() - 1},
               {"item", ItemJson(item, "in_progress", false)}});
    if (item.kind == DeltaKind::kToolCall) return events;
    Json fields = Place(item);
    fields["part"] = Part(item);
    return events + Event("response.content_part.added", std::move(fields));
  }

  std::string CloseItem() {
    if (!std::exchange(is_open_, false)) return "";
    const Item& item = items_.back();
    Json fields = Place(item);
    const bool is_call = item.kind == DeltaKind::kToolCall;
    fields[is_call ? "arguments" : "text"] = item.text;
    if (is_call) fields["name"] = item.name;
    if (item.kind == DeltaKind::kContent) fields["logprobs"] = item.logprobs;
    std::string events =
        Event("response." + Name(item.kind) + ".done", std::move(fields));
    if (!is_call) {
      Json part = Place(item);
      part["part"] = Part(item);
      events += Event("response.content_part.done", std::move(part));
    }
    return events + Event("response.output_item.done",
                          {{"output_index", items_.size() - 1},
                           {"item", ItemJson(item, "completed", true)}});
  }

  // Completes the response, keeps it, and gives its text.
  std::string Finish(const Completed& completed) {
    const bool whole =
        completed.choice.reason != handlers::FinishReason::kLength;
    response_["status"] = whole ? "completed" : "incomplete";
    if (!whole) {
      response_["incomplete_details"] = {{"reason", "max_output_tokens"}};
    }
    Json output = Json::array();
    for (const Item& item : items_) {
      const bool last = &item == &items_.back();
      output.push_back(
          ItemJson(item, whole || !last ? "completed" : "incomplete", true));
    }
    response_["output"] = std::move(output);
    response_["usage"] = UsageOf(completed.usage);
    std::string text = DumpJson(response_);
    if (!keep_.wanted) return text;
    Json message = {{"role", "assistant"}, {"content", completed.choice.text}};
    for (const ToolCallText& call : completed.choice.calls) {
      message["tool_calls"].push_back(
          {{"id", call.id},
           {"type", "function"},
           {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
    }
    keep_.conversation.push_back(std::move(message));
    site_->responses.Put(response_["id"].get<std::string>(),
                         {.tenant = keep_.tenant,
                          .response = text,
                          .conversation = DumpJson(keep_.conversation),
                          .input = DumpJson(keep_.input)});
    return text;
  }

  const std::shared_ptr<const Site> site_;
  Json response_;
  ToKeep keep_;
  std::vector<Item> items_;
  bool is_open_ = false;                 // the last item is being written
  Json early_logprobs_ = Json::array();  // of tokens before the text's begin
  int64_t sequence_ = 0;
};

Json FieldOr(const Json& body, const char* name, Json otherwise) {
  const Json* value = handlers::FindField(body, name);
  return value != nullptr ? *value : std::move(otherwise);
}

// The response before it has any output.
Json EmptyResponse(const Json& body, const std::string& model) {
  const Json text = {{"format", {{"type", "text"}}}};
  return {
      {"id", "resp_" + RandomHex(48)},
      {"object", "response"},
      {"created_at", std::time(nullptr)},
      {"status", "in_progress"},
      {"background", false},
      {"error", nullptr},
      {"incomplete_details", nullptr},
      {"instructions", FieldOr(body, "instructions", nullptr)},
      {"max_output_tokens", FieldOr(body, "max_output_tokens", nullptr)},
      {"model", model},
      {"output", Json::array()},
      {"parallel_tool_calls", FieldOr(body, "parallel_tool_calls", true)},
      {"previous_response_id", FieldOr(body, "previous_response_id", nullptr)},
      {"reasoning", FieldOr(body, "reasoning", Json::object())},
      {"service_tier", "default"},
      {"store", FieldOr(body, "store", true)},
      {"temperature", FieldOr(body, "temperature", nullptr)},
      {"text", FieldOr(body, "text", text)},
      {"tool_choice", FieldOr(body, "tool_choice", "auto")},
      {"tools", FieldOr(body, "tools", Json::array())},
      {"top_p", FieldOr(body, "top_p", nullptr)},
      {"truncation", "disabled"},
      {"usage", nullptr},
      {"user", FieldOr(body, "user", nullptr)},
      {"metadata", FieldOr(body, "metadata", Json::object())}};
}

uint32_t TenantOf(const Exchange& exchange) {
  return exchange.caller()->tenant->number();
}

Status NoSuchResponse(std::string_view id) {
  return NotFound("there is no response '" + std::string(id) +
                  "'; it was never kept, was deleted, or had to make room "
                  "for newer ones")
      .Because("response_not_found");
}

// The request as a chat, behind the conversation that it goes on.
StatusOr<ChatBody> ReadChat(const Site& site, const Exchange& exchange,
                            const Json& body) {
  ASSIGN_OR_RETURN(const auto previous,
                   handlers::ReadString(body, "previous_response_id"));
  Json history = Json::array();
  if (previous) {
    const auto entry = site.responses.Find(*previous, TenantOf(exchange));
    if (entry == nullptr) {
      return NoSuchResponse(*previous).At("previous_response_id");
    }
    ASSIGN_OR_RETURN(history, ParseJson(entry->conversation));
  }
  return ResponsesChatBody(body, std::move(history));
}

Status CountTokens(const Site& site,
                   const std::shared_ptr<Exchange>& exchange) {
  ASSIGN_OR_RETURN(const Json body, ReadJsonBody(*exchange));
  ASSIGN_OR_RETURN(const ChatBody read, ReadChat(site, *exchange, body));
  ASSIGN_OR_RETURN(const handlers::ChatPrompt prompt,
                   handlers::ReadChatPrompt(*read.body, read.images));
  ASSIGN_OR_RETURN(ModelHandle model, BorrowModel(site, *exchange, body));
  ASSIGN_OR_RETURN(const handlers::GenerateHandler* handler, model->ForText());
  ASSIGN_OR_RETURN(const handlers::TokenizedText text,
                   handler->TokenizeChat(prompt));
  exchange->Send(
      JsonResponse(200, DumpJson(Json{{"object", "response.input_tokens"},
                                      {"input_tokens", text.ids.size()}})));
  return OkStatus();
}

Status Create(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  ASSIGN_OR_RETURN(const Json body, ReadJsonBody(*exchange));
  ASSIGN_OR_RETURN(const ChatBody read, ReadChat(site, *exchange, body));
  const Json& chat = *read.body;
  handlers::GenerateRequest request;
  ASSIGN_OR_RETURN(request.prompt, handlers::ReadChatPrompt(chat, read.images));
  ASSIGN_OR_RETURN(request.options, handlers::ReadGenerateOptions(
                                        chat, handlers::FieldDialect::kChat));
  ASSIGN_OR_RETURN(const auto stream, handlers::ReadBool(body, "stream"));
  ASSIGN_OR_RETURN(const auto store, handlers::ReadBool(body, "store"));
  if (request.options.n > 1) {
    return InvalidArgument("n is not a field of this API; leave it out")
        .At("n");
  }
  ToKeep keep;
  keep.wanted = store.value_or(true);
  keep.tenant = TenantOf(*exchange);
  if (keep.wanted) {
    keep.conversation = chat["messages"];
    if (handlers::FindField(body, "instructions") != nullptr) {
      keep.conversation.erase(keep.conversation.begin());
    }
    keep.input = InputItems(body);
  }
  ASSIGN_OR_RETURN(ModelHandle model, BorrowModel(site, *exchange, body));
  Json response = EmptyResponse(body, exchange->facts().model);
  return StartCompletion(site, exchange, std::move(model), std::move(request),
                         std::make_unique<ResponseForm>(
                             site, std::move(response), std::move(keep)),
                         stream.value_or(false));
}

}  // namespace

void ServeCreateResponse(const Site& site,
                         const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, Create);
}

void ServeCountResponseTokens(const Site& site,
                              const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, CountTokens);
}

void ServeResponse(const Site& site,
                   const std::shared_ptr<Exchange>& exchange) {
  const std::string& id = exchange->params().front();
  const auto entry = site.responses.Find(id, TenantOf(*exchange));
  exchange->Send(entry == nullptr ? ErrorResponse(NoSuchResponse(id))
                                  : JsonResponse(200, entry->response));
}

void ServeDeleteResponse(const Site& site,
                         const std::shared_ptr<Exchange>& exchange) {
  const std::string& id = exchange->params().front();
  exchange->Send(site.responses.Erase(id, TenantOf(*exchange))
                     ? JsonResponse(200, DumpJson(Json{{"id", id},
                                                       {"object", "response"},
                                                       {"deleted", true}}))
                     : ErrorResponse(NoSuchResponse(id)));
}

void ServeResponseInput(const Site& site,
                        const std::shared_ptr<Exchange>& exchange) {
  const std::string& id = exchange->params().front();
  const auto entry = site.responses.Find(id, TenantOf(*exchange));
  exchange->Send(
      entry == nullptr
          ? ErrorResponse(NoSuchResponse(id))
          : JsonResponse(200, "{\"object\":\"list\",\"data\":" + entry->input +
                                  ",\"has_more\":false}"));
}

}  // namespace millrace::server::http
