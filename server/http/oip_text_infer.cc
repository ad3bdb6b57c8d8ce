#include "server/http/oip_text_infer.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "config/base/deadline.h"
#include "config/base/json.h"
#include "config/base/out_of_memory.h"
#include "handlers/generate_tensors.h"
#include "handlers/json_fields.h"
#include "handlers/named_tensors.h"
#include "models/tensor/strings.h"
#include "server/http/compressed.h"
#include "server/http/message.h"
#include "server/http/oip_answer.h"
#include "server/http/oip_request.h"
#include "server/shared_memory.h"

namespace millrace::server::http {
namespace {

using Json = nlohmann::ordered_json;

// Parameters of the protocol, which are no sampling fields.
bool IsOfProtocol(std::string_view name) {
  for (const std::string_view known :
       {"binary_data_output", "timeout", "batch_statistics", "sequence_id",
        "sequence_start", "sequence_end", "headers"}) {
    if (name == known) return true;
  }
  return name.starts_with("triton_");
}

StatusOr<handlers::GenerateTensors> ReadCall(const std::string& model,
                                             const InferBody& body) {
  const handlers::SequencePlace none;
  if (body.sequence.id != none.id &&
      body.sequence.id != handlers::SequenceId(std::string())) {
    return InvalidArgument(
               "parameter 'sequence_id' is set but a generative model keeps no "
               "state between requests; leave it out")
        .At("sequence_id");
  }
  RETURN_IF_ERROR(handlers::OutputsWanted(body.request.outputs,
                                          handlers::GenerateOutputs(), model)
                      .status());
  for (const auto& [output, form] : body.forms) {
    if (form.classes == 0) continue;
    return InvalidArgument("output '" + output +
                           "' asks for 'classification', but is text; leave it "
                           "out")
        .At(output);
  }
  Json fields = Json::object();
  if (body.parameters != nullptr) {
    RETURN_IF_ERROR(handlers::CheckFieldCount(body.parameters->size()));
    for (const auto& [name, value] : body.parameters->items()) {
      if (!IsOfProtocol(name)) fields[name] = value;
    }
  }
  ASSIGN_OR_RETURN(handlers::GenerateTensors call,
                   handlers::ReadGenerateTensors(body.request.inputs, fields));
  if (!call.stream) return call;
  return InvalidArgument(
             "stream is true but infer gives one answer; post to "
             "generate_stream or leave 'stream' out")
      .At("stream");
}

// The calls of one request come one after the other.
class TextReply final : public handlers::GenerateSink {
 public:
  TextReply(std::shared_ptr<const Site> site,
            std::shared_ptr<Exchange> exchange, ModelHandle model,
            InferAnswerShape shape)
      : site_(std::move(site)),
        exchange_(std::move(exchange)),
        model_(std::move(model)),
        shape_(std::move(shape)) {}

  void OnAccepted(const handlers::Usage&) override {}
  void OnDelta(handlers::OutputDelta delta) override { text_ += delta.text; }
  void OnEnd(handlers::GenerateEnd end) override {
    exchange_->SetTokens(end.usage.prompt_tokens, end.usage.completion_tokens);
    if (!end.status.ok()) {
      return exchange_->Send(OipErrorResponse(end.status));
    }
    StatusOr<HttpResponse> response = CatchOutOfMemory(
        [&]() -> StatusOr<HttpResponse> { return Whole(end); });
    exchange_->Send(response.ok() ? *std::move(response)
                                  : OipErrorResponse(response.status()));
  }

 private:
  StatusOr<HttpResponse> Whole(const handlers::GenerateEnd& end) {
    shape_.parameters = DumpJson(Json{
        {"finish_reason",
         end.reason == handlers::FinishReason::kLength ? "length" : "stop"},
        {"prompt_tokens", end.usage.prompt_tokens},
        {"completion_tokens", end.usage.completion_tokens}});
    const std::string_view text = text_;
    handlers::TensorResponse result;
    result.outputs.push_back(
        {handlers::kTextOutput, models::MakeStrings({1}, {&text, 1})});
    ASSIGN_OR_RETURN(
        HttpResponse response,
        InferResponse(shape_, result, site_->services.state->regions));
    Compress(exchange_->request(), kLeastCompressedInfer, response);
    return response;
  }

  const std::shared_ptr<const Site> site_;
  const std::shared_ptr<Exchange> exchange_;
  const ModelHandle model_;  // held until the end
  InferAnswerShape shape_;
  std::string text_;
};

}  // namespace

Status InferText(const Site& site, const std::shared_ptr<Exchange>& exchange,
                 ModelHandle model, const std::string& name) {
  ASSIGN_OR_RETURN(handlers::GenerateHandler * handler, model->ForText());
  ASSIGN_OR_RETURN(const Clock::Time deadline, ReadDeadline(*exchange));
  std::optional<InferBody> body;
  {
    const Exchange::Body bytes = exchange->TakeBody();
    ASSIGN_OR_RETURN(const std::optional<size_t> json_bytes,
                     ReadJsonBytes(exchange->request(), bytes.text.size()));
    if (json_bytes == size_t{0}) {
      return InvalidArgument(
                 "a body without JSON (Inference-Header-Content-Length: 0) "
                 "takes an input of numbers, and text_input is BYTES; send the "
                 "JSON that describes the tensors")
          .At("Inference-Header-Content-Length");
    }
    ASSIGN_OR_RETURN(body, ReadInferBody(bytes.text, json_bytes,
                                         site.services.state->regions));
  }
  ASSIGN_OR_RETURN(handlers::GenerateTensors call, ReadCall(name, *body));
  handlers::GenerateRequest request;
  request.prompt = std::move(call.prompt);
  request.options = std::move(call.options);
  request.deadline =
      EarlierDeadline(deadline, body->request.timeout, *site.services.clock);
  request.tenant = ShareOf(*exchange);
  request.options.priority = PriorityOf(*exchange, request.options.priority);
  request.trace = exchange->trace();
  exchange->trace()->Stamp(Stage::kParsed, site.services.clock->Now());
  InferAnswerShape shape = {.model = name,
                            .version = model->version(),
                            .id = std::move(body->id),
                            .binary = body->binary,
                            .forms = std::move(body->forms)};
  handler->Start(
      std::move(request),
      std::make_shared<TextReply>(site.shared_from_this(), exchange,
                                  std::move(model), std::move(shape)),
      exchange->stop_token());
  return OkStatus();
}

}  // namespace millrace::server::http
