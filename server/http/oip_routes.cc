// The Open Inference Protocol over REST: metadata, readiness, and infer of
// graphs and tasks (of language models: oip_text_infer.h).
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/base/json.h"
#include "config/base/out_of_memory.h"
#include "handlers/generate_tensors.h"
#include "handlers/place_in_time.h"
#include "models/tensor/strings.h"
#include "server/http/compressed.h"
#include "server/http/message.h"
#include "server/http/oip_answer.h"
#include "server/http/oip_request.h"
#include "server/http/oip_text_infer.h"
#include "server/http/pool_work.h"
#include "server/http/request_deadline.h"
#include "server/http/routes.h"
#include "server/http/task_request.h"
#include "server/http/task_work.h"
#include "server/lifecycle/composite.h"
#include "server/lifecycle/takes_parts.h"
#include "server/tensor_json.h"
#include "server/version.h"

namespace millrace::server::http {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kSmallAnswerBytes = 4 << 10;

struct ModelPath {
  std::string name;
  std::string version;  // empty: any
};

ModelPath PathOf(const std::vector<std::string>& params) {
  return {params[0], params.size() > 1 ? params[1] : ""};
}
ModelPath PathOf(const Exchange& exchange) { return PathOf(exchange.params()); }

// Why there is no model of that name or version: of "m/trace/setting" the model
// 'm' may be there, without such a route.
Status NoModelAt(const Site& site, const ModelPath& path,
                 const Status& not_found) {
  const size_t behind = path.version.find('/');
  if (behind != std::string::npos) {
    const std::string version = path.version.substr(0, behind);
    if (!site.services.repository->Find(path.name, version).ok()) {
      return not_found;
    }
    return NotFound("version '" + version + "' of the model '" + path.name +
                    "' has nothing at '" + path.version.substr(behind) +
                    "'; it has /config, /infer, /ready and /stats")
        .Because("route_not_found");
  }
  const size_t slash = path.name.find('/');
  if (slash == std::string::npos) return not_found;
  const std::string model = path.name.substr(0, slash);
  if (!site.services.repository->Find(model).ok()) return not_found;
  return NotFound("the model '" + model + "' has nothing at '" +
                  path.name.substr(slash) +
                  "'; it has /config, /generate, /generate_stream, /infer, "
                  "/ready, /stats, /trace/setting and /versions/{version}")
      .Because("route_not_found");
}

HttpResponse MakeResponse(const Exchange& exchange, const Site& site,
                          const InferAnswerShape& shape,
                          const StatusOr<handlers::TensorResponse>& answer) {
  if (!answer.ok()) return OipErrorResponse(answer.status());
  StatusOr<HttpResponse> response =
      CatchOutOfMemory([&]() -> StatusOr<HttpResponse> {
        ASSIGN_OR_RETURN(
            HttpResponse whole,
            InferResponse(shape, *answer, site.services.state->regions));
        // Inference-Header-Content-Length counts the bytes before, as Triton's
        // does.
        Compress(exchange.request(), kLeastCompressedInfer, whole);
        return whole;
      });
  return response.ok() ? *std::move(response)
                       : OipErrorResponse(response.status());
}

// Whether the response is made in a moment, so that an I/O thread may do it.
bool IsSmall(const StatusOr<handlers::TensorResponse>& answer) {
  int64_t bytes = 0;
  if (answer.ok()) {
    for (const auto& output : answer->outputs) {
      bytes += output.tensor.num_bytes() + models::NumCharacters(output.tensor);
    }
  }
  return bytes <= kSmallAnswerBytes;
}

// A picture or a recording as the body, or BYTES: the model's task answers.
// None: the body has tensors for the graph.
StatusOr<std::optional<TaskInferBody>> ReadTask(const Exchange& exchange,
                                                const std::string& body) {
  const HttpRequest& request = exchange.request();
  ASSIGN_OR_RETURN(const std::optional<size_t> json_bytes,
                   ReadJsonBytes(request, body.size()));
  const std::string type = MediaType(request.Header("content-type"));
  if (json_bytes != size_t{0} && !type.starts_with("image/") &&
      !type.starts_with("audio/")) {
    return ReadTaskInfer(body, json_bytes);
  }
  TaskInferBody raw;
  raw.request.parts.push_back({.content_type = type, .bytes = body});
  return std::optional<TaskInferBody>(std::move(raw));
}

Status InferTask(const Site& site, const std::shared_ptr<Exchange>& exchange,
                 ModelHandle model, TaskInferBody body) {
  handlers::TaskRequest request = std::move(body.request);
  const std::string version = model->version();
  return RunTask(
      site, exchange, std::move(model), std::move(request), OipErrorResponse,
      [name = PathOf(*exchange).name, version, exchange,
       shape = std::make_shared<const TaskInferBody>(std::move(body))](
          const handlers::TaskResponse& response) {
        HttpResponse answer =
            TaskInferResponse(name, version, *shape, response);
        Compress(exchange->request(), kLeastCompressedInfer, answer);
        return answer;
      });
}

// Whether the model has a place (kNever), or one in time for this deadline.
Status GuardTensors(const Site& site, const std::vector<std::string>& params,
                    Clock::Time deadline) {
  const ModelPath path = PathOf(params);
  const StatusOr<ModelHandle> model =
      site.services.repository->Borrow(path.name, path.version);
  // What else is wrong, the route says; and which of several versions serves,
  // the request's headers.
  if (!model.ok() ||
      (path.version.empty() &&
       site.services.repository->VersionsOf(path.name).size() > 1)) {
    return OkStatus();
  }
  const auto handler = (*model)->ForTensors();
  if (!handler.ok()) return OkStatus();
  return deadline == kNever ? (*handler)->HasPlace()
                            : handlers::IsInTime(**handler, deadline);
}

// The earlier of the header's and the body's.
Status Infer(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  const ModelPath path = PathOf(*exchange);
  exchange->SetModel(path.name);
  ASSIGN_OR_RETURN(ModelHandle model,
                   BorrowNamed(site, *exchange, path.name, path.version));
  if (model->text_facts() != nullptr) {
    return InferText(site, exchange, std::move(model), path.name);
  }
  ASSIGN_OR_RETURN(handlers::TensorHandler * handler, model->ForTensors());
  ASSIGN_OR_RETURN(const Clock::Time deadline, ReadDeadline(*exchange));
  std::optional<InferBody> body;
  {
    const Exchange::Body bytes = exchange->TakeBody();
    if (TakesParts(*model)) {
      ASSIGN_OR_RETURN(auto task, ReadTask(*exchange, bytes.text));
      if (task.has_value()) {
        return InferTask(site, exchange, std::move(model), *std::move(task));
      }
    }
    ASSIGN_OR_RETURN(const std::optional<size_t> json_bytes,
                     ReadJsonBytes(exchange->request(), bytes.text.size()));
    if (json_bytes == size_t{0}) {
      ASSIGN_OR_RETURN(body, ReadRawBody(bytes.text, handler->inputs()));
    } else {
      ASSIGN_OR_RETURN(body, ReadInferBody(bytes.text, json_bytes,
                                           site.services.state->regions));
    }
  }
  exchange->trace()->Stamp(Stage::kParsed, site.services.clock->Now());
  InferAnswerShape shape = {.model = path.name,
                            .version = model->version(),
                            .id = std::move(body->id),
                            .binary = body->binary,
                            .forms = std::move(body->forms),
                            .batch_statistics = body->batch_statistics};
  handlers::TensorRequest request = std::move(body->request);
  if (site.services.torchserve != nullptr && request.inputs.size() == 1 &&
      handler->inputs().size() == 1) {
    // TorchServe's clients name their only input as they like.
    request.inputs[0].name = handler->inputs()[0].name;
  }
  request.deadline = deadline;
  request.priority = PriorityOf(*exchange, request.priority);
  request.trace = exchange->trace();
  request.short_done = true;
  // The model is let go of when the response is made, never on its own thread,
  // which must not be the one to unload it.
  auto held = std::make_shared<std::optional<ModelHandle>>(std::move(model));
  handlers::StartInSequence(
      handler, std::move(body->sequence), std::move(request),
      [exchange, held = std::move(held), shape = std::move(shape),
       shared = site.shared_from_this()](
          StatusOr<handlers::TensorResponse> answer) mutable {
        const bool is_small = IsSmall(answer);
        Exchange::MakeResponse make =
            [exchange = exchange.get(), held = std::move(held),
             shape = std::move(shape), shared,
             answer = std::make_shared<StatusOr<handlers::TensorResponse>>(
                 std::move(answer))] {
              HttpResponse response =
                  MakeResponse(*exchange, *shared, shape, *answer);
              held->reset();
              return response;
            };
        if (is_small && exchange->SendWhenTaken(make)) return;
        shared->services.pool->Continue(
            [exchange, make = std::move(make)] { exchange->Send(make()); });
      },
      exchange->stop_token());
  return OkStatus();
}

}  // namespace

void ServeOipServer(const Site&, const std::shared_ptr<Exchange>& exchange) {
  exchange->Send(JsonResponse(
      200,
      DumpJson(Json{{"name", "millrace"},
                    {"version", std::string(Version())},
                    {"extensions",
                     Json::array({"classification", "model_repository",
                                  "schedule_policy", "model_configuration",
                                  "system_shared_memory", "binary_tensor_data",
                                  "parameters", "statistics", "logging"})}})));
}

void ServeOipModels(const Site& site,
                    const std::shared_ptr<Exchange>& exchange) {
  Json names = Json::array();
  for (const auto& servable : site.services.repository->List()) {
    if (!exchange->caller()->tenant->MayUse(servable->id()).ok()) continue;
    names.push_back(servable->id());
  }
  exchange->Send(
      JsonResponse(200, DumpJson(Json{{"models", std::move(names)}})));
}

void ServeOipModel(const Site& site,
                   const std::shared_ptr<Exchange>& exchange) {
  const ModelPath path = PathOf(*exchange);
  const auto found = site.services.repository->Find(path.name, path.version);
  if (!found.ok()) {
    exchange->Send(OipErrorResponse(NoModelAt(site, path, found.status())));
    return;
  }
  const std::shared_ptr<Servable>& servable = *found;
  Json versions = Json::array();
  for (std::string& version : site.services.repository->VersionsOf(path.name)) {
    versions.push_back(std::move(version));
  }
  Json metadata = {{"name", path.name},
                   {"versions", std::move(versions)},
                   {"platform", servable->facts().platform}};
  if (const auto handler = servable->ForTensors(); handler.ok()) {
    metadata["inputs"] = TensorSpecsJson((*handler)->inputs());
    metadata["outputs"] = TensorSpecsJson((*handler)->outputs());
  } else {
    metadata["inputs"] = TensorSpecsJson(handlers::GenerateInputs());
    metadata["outputs"] = TensorSpecsJson(handlers::GenerateOutputs());
  }
  for (const auto& [name, value] : servable->facts().parameters) {
    metadata["parameters"][name] = value;
  }
  exchange->Send(JsonResponse(200, DumpJson(metadata)));
}

void ServeOipModelReady(const Site& site,
                        const std::shared_ptr<Exchange>& exchange) {
  const ModelPath path = PathOf(*exchange);
  const auto found = site.services.repository->Find(path.name, path.version);
  if (!found.ok() && found.status().code() == StatusCode::kNotFound) {
    exchange->Send(OipErrorResponse(found.status()));
    return;
  }
  const bool ready = found.ok() && ReadyOf(**found).ok() &&
                     site.services.repository->state() == ServerState::kReady;
  exchange->Send(
      JsonResponse(ready ? 200 : 503,
                   DumpJson(Json{{"name", path.name}, {"ready", ready}})));
}

Status GuardOipInfer(const Site& site, const std::vector<std::string>& params) {
  return GuardTensors(site, params, kNever);
}

Status CheckInTime(const Site& site, const RouteMatch& match,
                   const HttpRequest& head, Clock::Time accepted) {
  if (match.route->serve != ServeOipInfer) return OkStatus();
  const StatusOr<Clock::Time> deadline = ReadDeadline(head, accepted);
  // Without one, GuardOipInfer has been asked already.
  if (!deadline.ok() || *deadline == kNever) return OkStatus();
  return GuardTensors(site, match.params, *deadline);
}

void ServeOipInfer(const Site& site,
                   const std::shared_ptr<Exchange>& exchange) {
  // A task reads its parts before its handler returns: pictures are decoded.
  // A prompt is made into tokens.
  const ModelPath path = PathOf(*exchange);
  const auto model = site.services.repository->Find(path.name, path.version);
  const bool has_task = model.ok() && ((*model)->task() != nullptr ||
                                       (*model)->text_facts() != nullptr);
  // And a short body may name a large region of shared memory.
  const HttpRequest& request = exchange->request();
  const auto json_bytes = ReadJsonBytes(request, request.body.size());
  const size_t end =
      json_bytes.ok() ? json_bytes->value_or(kShortBodyBytes) : kShortBodyBytes;
  const bool may_be_long =
      has_task || MayNameRegion(std::string_view(request.body)
                                    .substr(0, std::min(end, kShortBodyBytes)));
  (may_be_long ? RunOnPool : RunSoon)(site, exchange, Infer, OipErrorResponse);
}

}  // namespace millrace::server::http
