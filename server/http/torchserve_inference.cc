// TorchServe's inference API over REST.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/http/pool_work.h"
#include "server/http/torchserve_form.h"
#include "server/http/torchserve_routes.h"
#include "server/torchserve/predict.h"
#include "server/torchserve/registry.h"

namespace millrace::server::http {
namespace {

using torchserve::Prediction;
using torchserve::PredictionBody;
using torchserve::PredictionCall;
using torchserve::PredictionDone;

// The model of "NAME", "NAME/VERSION" or "NAME/VERSION/anything".
StatusOr<Prediction> FindFor(const Site& site, Exchange& exchange,
                             std::string_view path) {
  const size_t slash = std::min(path.find('/'), path.size());
  const std::string name(path.substr(0, slash));
  path.remove_prefix(std::min(slash + 1, path.size()));
  const std::string version(path.substr(0, path.find('/')));
  exchange.SetModel(name);
  return torchserve::FindPrediction(
      *site.services.torchserve, name, version,
      [&](const std::string& of_name, const std::string& of_version) {
        return BorrowNamed(site, exchange, of_name, of_version);
      });
}

// What a handler in Python gets to see of the request: no keys of the server.
std::vector<std::pair<std::string, std::string>> HeadersFor(
    const Prediction& prediction, const Exchange& exchange) {
  if (prediction.model.python == nullptr) return {};
  auto headers = exchange.request().headers;
  std::erase_if(headers, [](const auto& header) {
    return header.first == "authorization" || header.first == "x-api-key";
  });
  return headers;
}

StatusOr<PredictionCall> CallOf(const Site& site, const Exchange& exchange,
                                const Prediction& prediction) {
  ASSIGN_OR_RETURN(const Clock::Time deadline, ReadDeadline(exchange));
  return PredictionCall{
      .clock = site.services.clock,
      .deadline = deadline,
      .priority = PriorityOf(exchange, 0),
      .trace = exchange.trace(),
      .stop = exchange.stop_token(),
      .headers = HeadersFor(prediction, exchange),
      .sequence = torchserve::PlaceIn(
          exchange.request().Header(torchserve::kSequenceId),
          exchange.request().Header(torchserve::kSequenceStart),
          exchange.request().Header(torchserve::kSequenceEnd))};
}

// An answer in parts is sent as they come, in chunks.
struct Answer {
  std::function<void(std::string)> on_part;
  PredictionDone done;
};
Answer AnswerTo(const std::shared_ptr<Exchange>& exchange) {
  // One thread after the other: parts end before the answer does.
  auto is_stream = std::make_shared<bool>(false);
  const auto on_part = [exchange, is_stream](const std::string& part) {
    if (!std::exchange(*is_stream, true)) {
      HttpResponse head = TorchServeResponse(200, "");
      head.content_type.clear();  // as there
      head.headers.emplace_back("ts_stream_next", "true");
      exchange->BeginStream(std::move(head));
    }
    exchange->Write(part);
  };
  const auto done = [exchange, is_stream](StatusOr<PredictionBody> body) {
    if (*is_stream) {
      if (!body.ok()) {
        exchange->SetFailure(body.status());
        exchange->EndAndClose();
        return;
      }
      exchange->Write(body->text);
      exchange->End();
      return;
    }
    if (!body.ok()) {
      exchange->Send(TorchServeErrorResponse(body.status()));
      return;
    }
    HttpResponse response =
        TorchServeResponse(body->http_status, std::move(body->text));
    response.content_type = std::move(body->content_type);
    if (response.status == 204 || response.status == 304) response.body.clear();
    for (auto& header : body->http_headers) {
      response.headers.push_back(std::move(header));
    }
    exchange->Send(std::move(response));
  };
  return {on_part, done};
}

Status PredictAt(const Site& site, const std::shared_ptr<Exchange>& exchange,
                 std::string_view path, bool explain = false) {
  ASSIGN_OR_RETURN(Prediction prediction, FindFor(site, *exchange, path));
  if (explain) RETURN_IF_ERROR(torchserve::CheckExplains(prediction));
  std::vector<handlers::TaskPart> parts;
  {
    Exchange::Body body = exchange->TakeBody();
    ASSIGN_OR_RETURN(parts,
                     ReadParts(exchange->request().Header("content-type"),
                               std::move(body.text)));
  }
  // GET and curl's queries: fields stand in the URL.
  if (parts.size() == 1 && parts[0].bytes.empty()) {
    ASSIGN_OR_RETURN(Fields fields, ParseFields(exchange->request().query));
    if (!fields.empty()) parts.clear();
    for (auto& [name, value] : fields) {
      parts.push_back({.name = std::move(name), .bytes = std::move(value)});
    }
  }
  ASSIGN_OR_RETURN(PredictionCall call, CallOf(site, *exchange, prediction));
  call.explain = explain;
  Answer answer = AnswerTo(exchange);
  call.on_part = std::move(answer.on_part);
  return torchserve::StartPrediction(std::move(prediction), std::move(parts),
                                     std::move(call), std::move(answer.done));
}

Status Predict(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  return PredictAt(site, exchange, exchange->params().front());
}

// Amazon SageMaker's route: the only model there is.
Status Invoke(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  const auto models = site.services.torchserve->List();
  if (models.size() != 1) {
    return InvalidArgument("/invocations asks the only model, and there are " +
                           std::to_string(models.size()) +
                           "; name one with /predictions/{model_name}");
  }
  return PredictAt(site, exchange, models.front().name);
}

// KServe v1: NAME:predict and NAME:explain.
Status PredictInstances(const Site& site,
                        const std::shared_ptr<Exchange>& exchange) {
  std::string path = exchange->params().front();
  const size_t colon = path.rfind(':');
  const std::string verb = colon == std::string::npos ? "" : path.substr(colon);
  path.resize(std::min(colon, path.size()));
  if (verb != ":predict" && verb != ":explain") {
    return NotFound(
               "Requested resource is not found, please refer to API "
               "document.")
        .Because("route_not_found");
  }
  ASSIGN_OR_RETURN(Prediction prediction, FindFor(site, *exchange, path));
  Exchange::Body body = exchange->TakeBody();
  ASSIGN_OR_RETURN(PredictionCall call, CallOf(site, *exchange, prediction));
  call.explain = verb == ":explain";
  return torchserve::StartInstances(std::move(prediction), std::move(body.text),
                                    std::move(call), AnswerTo(exchange).done);
}

Status Explain(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  return PredictAt(site, exchange, exchange->params().front(), true);
}

// KServe v2: /v2/models/NAME/explain.
Status ExplainTensors(const Site& site,
                      const std::shared_ptr<Exchange>& exchange) {
  ASSIGN_OR_RETURN(Prediction prediction,
                   FindFor(site, *exchange, exchange->params().front()));
  Exchange::Body body = exchange->TakeBody();
  ASSIGN_OR_RETURN(PredictionCall call, CallOf(site, *exchange, prediction));
  return torchserve::StartExplainedTensors(
      std::move(prediction), std::move(body.text), std::move(call),
      AnswerTo(exchange).done);
}

}  // namespace

void ServeTorchPing(const Site& site,
                    const std::shared_ptr<Exchange>& exchange) {
  const bool healthy = torchserve::IsHealthy(*site.services.torchserve,
                                             *site.services.repository);
  exchange->Send(healthy ? TorchServeStatus(200, "Healthy")
                         : TorchServeStatus(500, "Unhealthy"));
}

void ServeTorchPredictions(const Site& site,
                           const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, Predict, TorchServeErrorResponse);
}

void ServeTorchInvocations(const Site& site,
                           const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, Invoke, TorchServeErrorResponse);
}

void ServeTorchInstances(const Site& site,
                         const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, PredictInstances, TorchServeErrorResponse);
}

void ServeTorchExplanations(const Site& site,
                            const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, Explain, TorchServeErrorResponse);
}

void ServeTorchExplainedTensors(const Site& site,
                                const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, ExplainTensors, TorchServeErrorResponse);
}

}  // namespace millrace::server::http
