// Text by the Open Inference Protocol: POST /v2/models/{id}/generate and
// generate_stream (Triton's docs/protocol/extension_generate.md, KServe's
// generate_rest.yaml).
//
//   {"text_input": "Once", "parameters": {"max_tokens": 8}}
//   {"model_name": "m", "model_version": "1", "text_output": " upon a time"}
//
// Sampling fields stand in `parameters` or beside text_input, or as JSON in
// sampling_parameters, as Triton's vLLM backend has them. A stream is
// server-sent events of the same form, each with the text that is new; there is
// no [DONE], and an error after the first is {"error": "…"}.
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "config/base/json.h"
#include "handlers/generate_tensors.h"
#include "handlers/json_fields.h"
#include "handlers/request_fields.h"
#include "server/http/message.h"
#include "server/http/openai_shapes.h"
#include "server/http/pool_work.h"
#include "server/http/routes.h"

namespace millrace::server::http {
namespace {

using Json = nlohmann::ordered_json;

struct Shape {
  bool stream = false;
  bool details = false;
  std::optional<std::string> id;
  std::string model;
  std::string version;
};

std::string_view ReasonName(handlers::FinishReason reason,
                            const handlers::StopReason& stop) {
  if (reason == handlers::FinishReason::kLength) return "length";
  return std::holds_alternative<std::monostate>(stop) ? "eos_token"
                                                      : "stop_sequence";
}

// The calls of one request come one after the other.
class Reply final : public handlers::GenerateSink {
 public:
  Reply(Shape shape, std::shared_ptr<Exchange> exchange, ModelHandle model)
      : shape_(std::move(shape)),
        exchange_(std::move(exchange)),
        model_(std::move(model)) {}

  void OnAccepted(const handlers::Usage&) override {
    if (!shape_.stream) return;
    HttpResponse head;
    head.content_type = "text/event-stream; charset=utf-8";
    head.headers.emplace_back("Cache-Control", "no-cache");
    exchange_->BeginStream(std::move(head));
    streaming_ = true;
  }

  void OnDelta(handlers::OutputDelta delta) override {
    if (!shape_.stream) {
      text_ += delta.text;
    } else if (!delta.text.empty()) {
      exchange_->Write(SseEvent(DumpJson(Body(delta.text))));
    }
  }

  void OnEnd(handlers::GenerateEnd end) override {
    exchange_->SetTokens(end.usage.prompt_tokens, end.usage.completion_tokens);
    if (!end.status.ok()) return Fail(end.status);
    Json body = Body(text_);
    if (shape_.details) {
      body["details"] = {{"finish_reason",
                          std::string(ReasonName(end.reason, end.stop_reason))},
                         {"prompt_tokens", end.usage.prompt_tokens},
                         {"completion_tokens", end.usage.completion_tokens}};
    }
    if (!shape_.stream) {
      exchange_->Send(JsonResponse(200, DumpJson(body)));
      return;
    }
    if (shape_.details) exchange_->Write(SseEvent(DumpJson(body)));
    exchange_->End();
  }

 private:
  Json Body(const std::string& text) const {
    Json body = Json::object();
    if (shape_.id.has_value()) body["id"] = *shape_.id;
    body["model_name"] = shape_.model;
    body["model_version"] = shape_.version;
    body["text_output"] = text;
    return body;
  }

  void Fail(const Status& status) {
    if (!streaming_) {
      exchange_->Send(OipErrorResponse(status));
      return;
    }
    exchange_->SetFailure(status);
    exchange_->Write(SseEvent(OipErrorResponse(status).body));
    exchange_->EndAndClose();
  }

  const Shape shape_;
  const std::shared_ptr<Exchange> exchange_;
  const ModelHandle model_;  // held until the end
  std::string text_;
  bool streaming_ = false;  // the status line is sent
};

// Fields of `parameters` and of the body itself, but for the protocol's own.
StatusOr<Json> SamplingFields(const Json& body) {
  RETURN_IF_ERROR(handlers::CheckFieldCount(body.size()));
  ASSIGN_OR_RETURN(const Json* parameters,
                   handlers::ReadObject(body, "parameters"));
  if (parameters != nullptr) {
    RETURN_IF_ERROR(handlers::CheckFieldCount(parameters->size()));
  }
  Json fields = parameters != nullptr ? *parameters : Json::object();
  for (const auto& [key, value] : body.items()) {
    if (key == "id" || key == "text_input" || key == "parameters") continue;
    if (fields.contains(key)) {
      return InvalidArgument("'" + key +
                             "' stands both in parameters and beside it; send "
                             "it once")
          .At(key);
    }
    fields[key] = value;
  }
  return fields;
}

Status Generate(const Site& site, const std::shared_ptr<Exchange>& exchange,
                bool stream) {
  const std::vector<std::string>& path = exchange->params();
  const std::string version = path.size() > 1 ? path[1] : "";
  exchange->SetModel(path[0]);
  ASSIGN_OR_RETURN(ModelHandle model,
                   BorrowNamed(site, *exchange, path[0], version));
  ASSIGN_OR_RETURN(handlers::GenerateHandler * handler, model->ForText());
  ASSIGN_OR_RETURN(const Clock::Time deadline, ReadDeadline(*exchange));
  ASSIGN_OR_RETURN(const Json body, ReadJsonBody(*exchange));
  ASSIGN_OR_RETURN(const auto text, handlers::ReadString(body, "text_input"));
  if (!text.has_value()) {
    return InvalidArgument("text_input is missing").At("text_input");
  }
  Shape shape{.stream = stream,
              .details = false,
              .id = std::nullopt,
              .model = path[0],
              .version = model->version()};
  ASSIGN_OR_RETURN(shape.id, handlers::ReadString(body, "id"));
  ASSIGN_OR_RETURN(Json fields, SamplingFields(body));
  RETURN_IF_ERROR(handlers::TakeTensorFields(&fields));
  ASSIGN_OR_RETURN(const auto details, handlers::ReadBool(fields, "details"));
  shape.details = details.value_or(false);
  // Said by the route; clients of Triton's vLLM backend say it, too.
  ASSIGN_OR_RETURN(const auto told, handlers::ReadBool(fields, "stream"));
  if (told.has_value() && *told != stream) {
    return InvalidArgument(std::string("stream is ") +
                           (*told ? "true" : "false") + "; post to " +
                           (*told ? "generate_stream" : "generate") +
                           " for that")
        .At("stream");
  }
  handlers::GenerateRequest request;
  request.prompt = handlers::TextPrompt{*text};
  ASSIGN_OR_RETURN(request.options,
                   handlers::ReadGenerateOptions(
                       fields, handlers::FieldDialect::kSamplingParameters));
  request.deadline = deadline;
  request.tenant = ShareOf(*exchange);
  request.options.priority = PriorityOf(*exchange, request.options.priority);
  request.trace = exchange->trace();
  exchange->trace()->Stamp(Stage::kParsed, site.services.clock->Now());
  handler->Start(
      std::move(request),
      std::make_shared<Reply>(std::move(shape), exchange, std::move(model)),
      exchange->stop_token());
  return OkStatus();
}

Status GenerateWhole(const Site& site,
                     const std::shared_ptr<Exchange>& exchange) {
  return Generate(site, exchange, false);
}

Status GenerateStream(const Site& site,
                      const std::shared_ptr<Exchange>& exchange) {
  return Generate(site, exchange, true);
}

}  // namespace

void ServeOipGenerate(const Site& site,
                      const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, GenerateWhole, OipErrorResponse);
}

void ServeOipGenerateStream(const Site& site,
                            const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, GenerateStream, OipErrorResponse);
}

}  // namespace millrace::server::http
