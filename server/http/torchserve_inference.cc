// TorchServe's inference API. Predictions go to the model's task where it has
// one (pictures, texts), else to its tensors; both through its batcher.
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "config/base/json.h"
#include "server/http/pool_work.h"
#include "server/http/torchserve_form.h"
#include "server/http/torchserve_routes.h"
#include "server/http/torchserve_tensors.h"
#include "server/torchserve/registry.h"

namespace millrace::server::http {
namespace {

using Json = nlohmann::ordered_json;
using torchserve::Registered;

Status NoWorkers(const std::string& name) {
  return Unavailable("Model \"" + name +
                     "\" has no worker to serve inference request. Please use "
                     "scale workers API to add workers.");
}

struct Prediction {
  Registered model;
  ModelHandle handle;
};

// The model of "NAME", "NAME/VERSION" or "NAME/VERSION/anything".
StatusOr<Prediction> BorrowFor(const Site& site, Exchange& exchange,
                               std::string_view path) {
  const size_t slash = std::min(path.find('/'), path.size());
  const std::string name(path.substr(0, slash));
  path.remove_prefix(std::min(slash + 1, path.size()));
  const std::string version(path.substr(0, path.find('/')));
  exchange.SetModel(name);
  ASSIGN_OR_RETURN(Registered model,
                   site.services.torchserve->Find(name, version));
  if (model.min_workers == 0) return NoWorkers(name);
  StatusOr<ModelHandle> handle =
      BorrowNamed(site, exchange, name, model.version);
  // It is being loaded, or could not be.
  if (handle.status().code() == StatusCode::kNotFound) return NoWorkers(name);
  if (!handle.ok()) return handle.status();
  return Prediction{std::move(model), *std::move(handle)};
}

Clock::Time DeadlineOf(const Site& site, const Registered& model) {
  if (model.response_timeout_s == 0) return kNever;
  return site.services.clock->Now() +
         std::chrono::seconds(model.response_timeout_s);
}

void StartTensors(const Site& site, const std::shared_ptr<Exchange>& exchange,
                  Prediction prediction, handlers::TensorHandler* handler,
                  TorchServeInputs inputs, std::string before,
                  std::string after) {
  handlers::TensorRequest request;
  request.inputs = std::move(inputs.tensors);
  request.deadline = DeadlineOf(site, prediction.model);
  request.priority = PriorityOf(*exchange, 0);
  request.trace = exchange->trace();
  // Let go of by the ending itself, as for KServe v2.
  auto held = std::make_shared<std::optional<ModelHandle>>(
      std::move(prediction.handle));
  handler->Start(
      std::move(request),
      [exchange, held, is_row = inputs.is_row, before = std::move(before),
       after =
           std::move(after)](const StatusOr<handlers::TensorResponse>& answer) {
        StatusOr<std::string> text =
            answer.ok() ? TensorsJson(answer->outputs, is_row)
                        : StatusOr<std::string>(answer.status());
        exchange->Send(text.ok()
                           ? TorchServeResponse(200, before + *text + after)
                           : TorchServeErrorResponse(text.status()));
        held->reset();
      },
      exchange->stop_token());
}

// {"instances": ["…", {"data": "…"}, {"b64": "…"}]}: each text is an item.
StatusOr<std::vector<handlers::TaskPart>> ReadTaskInstances(
    std::string_view text) {
  ASSIGN_OR_RETURN(const Json body, ParseJson(text));
  const Status wrong =
      InvalidArgument(
          "the body must be a JSON object with a list of instances, which are "
          "texts or {\"data\": \"…\"} in base64")
          .At("instances");
  const auto at = body.is_object() ? body.find("instances") : body.end();
  if (at == body.end() || !at->is_array()) return wrong;
  std::vector<handlers::TaskPart> parts;
  for (const Json& item : *at) {
    const Json* value = &item;
    for (const char* key : {"data", "body", "b64"}) {
      if (!item.is_object() || !item.contains(key)) continue;
      value = &item[key];
      break;
    }
    if (!value->is_string()) return wrong;
    // The task of pictures undoes base64.
    parts.push_back({.bytes = value->get<std::string>()});
  }
  return parts;
}

std::string PredictionsBody(const handlers::TaskResponse& response) {
  std::string text = "{\"predictions\":[";
  for (size_t i = 0; i < response.results.size(); ++i) {
    if (i > 0) text += ',';
    text += response.results[i];
  }
  return text + "]}";
}

void StartTask(const Site& site, const std::shared_ptr<Exchange>& exchange,
               Prediction prediction, handlers::TaskHandler* handler,
               std::vector<handlers::TaskPart> parts,
               bool is_instances = false) {
  handlers::TaskRequest request;
  request.parts = std::move(parts);
  request.deadline = DeadlineOf(site, prediction.model);
  request.priority = PriorityOf(*exchange, 0);
  request.trace = exchange->trace();
  auto held = std::make_shared<std::optional<ModelHandle>>(
      std::move(prediction.handle));
  handler->Start(
      std::move(request),
      [exchange, held, is_instances](StatusOr<handlers::TaskResponse> answer) {
        if (answer.ok() && is_instances) {
          exchange->Send(TorchServeResponse(200, PredictionsBody(*answer)));
        } else if (answer.ok()) {
          std::string type = answer->content_type;
          HttpResponse response =
              TorchServeResponse(200, TaskBody(*std::move(answer)));
          response.content_type = std::move(type);
          exchange->Send(std::move(response));
        } else {
          exchange->Send(TorchServeErrorResponse(answer.status()));
        }
        held->reset();
      },
      exchange->stop_token());
}

Status PredictAt(const Site& site, const std::shared_ptr<Exchange>& exchange,
                 std::string_view path) {
  ASSIGN_OR_RETURN(Prediction prediction, BorrowFor(site, *exchange, path));
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
  exchange->trace()->Stamp(Stage::kParsed, site.services.clock->Now());
  if (const auto task = prediction.handle->ForTask(); task.ok()) {
    StartTask(site, exchange, std::move(prediction), *task, std::move(parts));
    return OkStatus();
  }
  ASSIGN_OR_RETURN(handlers::TensorHandler * handler,
                   prediction.handle->ForTensors());
  ASSIGN_OR_RETURN(TorchServeInputs inputs,
                   ReadTensors(std::move(parts), handler->inputs()));
  StartTensors(site, exchange, std::move(prediction), handler,
               std::move(inputs), "", "");
  return OkStatus();
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

// KServe v1: NAME:predict.
Status PredictInstances(const Site& site,
                        const std::shared_ptr<Exchange>& exchange) {
  std::string path = exchange->params().front();
  const size_t colon = path.rfind(':');
  const std::string verb = colon == std::string::npos ? "" : path.substr(colon);
  path.resize(std::min(colon, path.size()));
  if (verb == ":explain") return ExplanationsAbsent();
  if (verb != ":predict") {
    return NotFound(
               "Requested resource is not found, please refer to API "
               "document.")
        .Because("route_not_found");
  }
  ASSIGN_OR_RETURN(Prediction prediction, BorrowFor(site, *exchange, path));
  if (const auto task = prediction.handle->ForTask(); task.ok()) {
    std::vector<handlers::TaskPart> parts;
    {
      const Exchange::Body bytes = exchange->TakeBody();
      ASSIGN_OR_RETURN(parts, ReadTaskInstances(bytes.text));
    }
    exchange->trace()->Stamp(Stage::kParsed, site.services.clock->Now());
    StartTask(site, exchange, std::move(prediction), *task, std::move(parts),
              /*is_instances=*/true);
    return OkStatus();
  }
  ASSIGN_OR_RETURN(handlers::TensorHandler * handler,
                   prediction.handle->ForTensors());
  TorchServeInputs inputs;
  {
    const Exchange::Body bytes = exchange->TakeBody();
    ASSIGN_OR_RETURN(
        const Json body,
        ParseJson(bytes.text, {.max_depth = 16, .max_values = 50'000'000}));
    ASSIGN_OR_RETURN(inputs, ReadInstances(body, handler->inputs()));
  }
  inputs.is_row = false;
  exchange->trace()->Stamp(Stage::kParsed, site.services.clock->Now());
  StartTensors(site, exchange, std::move(prediction), handler,
               std::move(inputs), "{\"predictions\":", "}");
  return OkStatus();
}

Status Explain(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  std::string_view path = exchange->params().front();
  const size_t slash = std::min(path.find('/'), path.size());
  const std::string name(path.substr(0, slash));
  path.remove_prefix(std::min(slash + 1, path.size()));
  RETURN_IF_ERROR(site.services.torchserve
                      ->Find(name, std::string(path.substr(0, path.find('/'))))
                      .status());
  return ExplanationsAbsent();
}

}  // namespace

Status ExplanationsAbsent() {
  return Unimplemented(
             "explanations are not offered: they need Captum, which is Python; "
             "ask for predictions")
      .Because("not_explained");
}

void ServeTorchPing(const Site& site,
                    const std::shared_ptr<Exchange>& exchange) {
  bool healthy = site.services.repository->state() != ServerState::kDraining;
  for (const Registered& model : site.services.torchserve->List()) {
    if (model.min_workers == 0) continue;
    healthy &= site.services.repository->Find(model.name, model.version).ok();
  }
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

void ServeTorchWorkflow(const Site&,
                        const std::shared_ptr<Exchange>& exchange) {
  exchange->Send(TorchServeErrorResponse(
      NotFound("Workflow not found: " + exchange->params().front() +
               "; workflows are not offered")
          .Because("workflow_not_found")));
}

}  // namespace millrace::server::http
