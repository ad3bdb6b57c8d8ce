#include "server/torchserve/predict.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "config/base/json.h"
#include "config/base/out_of_memory.h"
#include "config/base/utf8.h"
#include "server/task_parts.h"
#include "server/torchserve/tensors.h"

namespace millrace::server::torchserve {
namespace {

using Json = nlohmann::ordered_json;

Status NoWorkers(const std::string& name) {
  return Unavailable("Model \"" + name +
                     "\" has no worker to serve inference request. Please use "
                     "scale workers API to add workers.");
}

Clock::Time DeadlineOf(const PredictionCall& call, const Registered& model) {
  if (model.response_timeout_s == 0) return call.deadline;
  return std::min(
      call.deadline,
      call.clock->Now() + std::chrono::seconds(model.response_timeout_s));
}

// What stands around the values of an answer.
struct Frame {
  std::string before, after;
};

void StartTensors(Prediction prediction, handlers::TensorHandler* handler,
                  PredictionInputs inputs, Frame frame, PredictionCall call,
                  PredictionDone done) {
  handlers::TensorRequest request;
  request.inputs = std::move(inputs.tensors);
  request.deadline = DeadlineOf(call, prediction.model);
  request.priority = call.priority;
  request.trace = std::move(call.trace);
  // Let go of by the ending itself, as for KServe v2.
  auto held = std::make_shared<std::optional<ModelHandle>>(
      std::move(prediction.handle));
  handlers::StartInSequence(
      handler, std::move(call.sequence), std::move(request),
      [held, clock = call.clock, is_row = inputs.is_row,
       frame = std::move(frame), done = std::move(done)](
          const StatusOr<handlers::TensorResponse>& answer) {
        const Clock::Time computed = clock->Now();
        done(CatchOutOfMemory([&]() -> StatusOr<PredictionBody> {
          RETURN_IF_ERROR(answer.status());
          ASSIGN_OR_RETURN(const std::string text,
                           TensorsJson(answer->outputs, is_row));
          return PredictionBody{.text = frame.before + text + frame.after,
                                .computed = computed};
        }));
        held->reset();
      },
      std::move(call.stop));
}

// {"instances": ["…", {"data": "…"}, {"b64": "…"}]}: each text is an item, and
// so is {"query": "…", "text": "…"}.
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
    if (IsTextItem(*value)) {
      parts.push_back(
          {.content_type = "application/json", .bytes = DumpJson(*value)});
      continue;
    }
    if (!value->is_string()) return wrong;
    // The task of pictures undoes base64.
    parts.push_back({.bytes = value->get<std::string>()});
  }
  return parts;
}

PredictionBody PredictionsBody(const handlers::TaskResponse& response) {
  std::string text = "{\"predictions\":[";
  for (size_t i = 0; i < response.results.size(); ++i) {
    if (i > 0) text += ',';
    text += response.results[i];
  }
  return {.text = text + "]}"};
}

PredictionBody WholeBody(handlers::TaskResponse response) {
  PredictionBody body;
  body.content_type = response.content_type;
  body.http_status = response.http_status;
  body.http_headers = std::move(response.http_headers);
  body.text = TaskBody(std::move(response));
  return body;
}

using MakeBody = PredictionBody (*)(handlers::TaskResponse);

// What millrace_torchserve.py reads; null: nothing.
std::shared_ptr<const Json> ParametersOf(const PredictionCall& call,
                                         const char* envelope) {
  Json parameters = Json::object();
  if (call.explain) parameters["explain"] = true;
  if (call.describe) parameters["describe"] = true;
  // A header that comes twice keeps its first value.
  for (const auto& [name, value] : call.headers) {
    if (IsValidUtf8(value)) parameters["headers"].emplace(name, value);
  }
  if (envelope != nullptr) parameters["envelope"] = envelope;
  if (parameters.empty()) return nullptr;
  return std::make_shared<const Json>(std::move(parameters));
}

// Parts go to the client, or before the text of the answer.
std::function<void(handlers::TaskResponse)> PartsOf(const PredictionCall& call,
                                                    PredictionDone& done) {
  if (call.on_part) {
    return [on_part = call.on_part](handlers::TaskResponse part) {
      on_part(TaskBody(std::move(part)));
    };
  }
  auto text = std::make_shared<std::string>();
  done = [text, done = std::move(done)](StatusOr<PredictionBody> body) {
    if (body.ok()) body->text.insert(0, *text);
    done(std::move(body));
  };
  return [text](handlers::TaskResponse part) {
    text->append(TaskBody(std::move(part)));
  };
}

// `envelope`: the form of the only part, whose items a handler in Python gets;
// null: none.
void StartTask(Prediction prediction, handlers::TaskHandler* handler,
               std::vector<handlers::TaskPart> parts, const char* envelope,
               MakeBody make_body, PredictionCall call, PredictionDone done) {
  handlers::TaskRequest request;
  request.parts = std::move(parts);
  if (prediction.model.python != nullptr) {
    request.parameters = ParametersOf(call, envelope);
    request.on_part = PartsOf(call, done);
  }
  request.deadline = DeadlineOf(call, prediction.model);
  request.priority = call.priority;
  request.trace = std::move(call.trace);
  auto held = std::make_shared<std::optional<ModelHandle>>(
      std::move(prediction.handle));
  handler->Start(
      std::move(request),
      [held, clock = call.clock, make_body,
       done = std::move(done)](StatusOr<handlers::TaskResponse> answer) {
        const Clock::Time computed = clock->Now();
        done(CatchOutOfMemory([&]() -> StatusOr<PredictionBody> {
          RETURN_IF_ERROR(answer.status());
          PredictionBody body = make_body(*std::move(answer));
          body.computed = computed;
          return body;
        }));
        held->reset();
      },
      std::move(call.stop));
}

void StampParsed(const PredictionCall& call) {
  call.trace->Stamp(Stage::kParsed, call.clock->Now());
}

// A handler in Python opens the envelope and closes it again.
Status StartEnveloped(Prediction prediction, const char* envelope,
                      std::string body, PredictionCall call,
                      PredictionDone done) {
  ASSIGN_OR_RETURN(handlers::TaskHandler * task, prediction.handle->ForTask());
  std::vector<handlers::TaskPart> parts;
  parts.push_back({.name = "body", .bytes = std::move(body)});
  StampParsed(call);
  StartTask(std::move(prediction), task, std::move(parts), envelope, WholeBody,
            std::move(call), std::move(done));
  return OkStatus();
}

// Writes its lines when it was answered.
PredictionDone Measured(const Prediction& prediction,
                        const PredictionCall& call, PredictionDone done) {
  MetricLog* const log = prediction.metric_log;
  if (log == nullptr) return done;
  log->Requested(prediction.model.name, prediction.version);
  return [log, name = prediction.model.name, version = prediction.version,
          clock = call.clock, trace = call.trace,
          done = std::move(done)](StatusOr<PredictionBody> body) {
    if (body.ok()) {
      const Clock::Time now = clock->Now();
      const auto since = [&](Stage stage) {
        const int64_t then = trace->stamps[static_cast<size_t>(stage)].load(
            std::memory_order_relaxed);
        return then == 0 ? 0.0
                         : std::chrono::duration<double>(
                               now.time_since_epoch() -
                               std::chrono::nanoseconds(then))
                               .count();
      };
      const double total_s = since(Stage::kParsed);
      const double compute_s = since(Stage::kScheduled);
      const double answer_s =
          std::chrono::duration<double>(now - body->computed).count();
      log->Predicted(name, version, trace->request_id,
                     {.total_s = total_s,
                      .queue_s = std::max(total_s - compute_s, 0.0),
                      .compute_s = compute_s,
                      .answer_s = answer_s});
    }
    done(std::move(body));
  };
}

}  // namespace

handlers::SequencePlace PlaceIn(std::string_view id, std::string_view start,
                                std::string_view end) {
  const auto is_true = [](std::string_view text) {
    return text == "true" || text == "True" || text == "TRUE";
  };
  return {.id = std::string(id),
          .start = is_true(start),
          .end = is_true(end),
          .start_if_new = true};
}

StatusOr<Prediction> FindPrediction(const Registry& registry,
                                    const std::string& name,
                                    const std::string& version,
                                    const Borrow& borrow) {
  ASSIGN_OR_RETURN(Registered model, registry.Find(name, version));
  if (model.min_workers == 0) return NoWorkers(name);
  StatusOr<ModelHandle> handle = borrow(name, model.version);
  // It is being loaded, or could not be.
  if (handle.status().code() == StatusCode::kNotFound) return NoWorkers(name);
  if (!handle.ok()) return handle.status();
  return Prediction{std::move(model), *std::move(handle), version,
                    registry.metric_log()};
}

bool IsHealthy(const Registry& registry, const Repository& repository) {
  if (repository.state() == ServerState::kDraining) return false;
  const std::vector<Registered> models = registry.List();
  return std::all_of(models.begin(), models.end(),
                     [&](const Registered& model) {
                       return model.min_workers == 0 ||
                              repository.Find(model.name, model.version).ok();
                     });
}

Status StartPrediction(Prediction prediction,
                       std::vector<handlers::TaskPart> parts,
                       PredictionCall call, PredictionDone done) {
  done = Measured(prediction, call, std::move(done));
  if (handlers::TaskHandler* const task = prediction.handle->task()) {
    StampParsed(call);
    if (prediction.model.python != nullptr) {
      // As TorchServe's handlers know a body that is no form.
      for (handlers::TaskPart& part : parts) {
        if (part.name.empty()) part.name = "body";
      }
    }
    StartTask(std::move(prediction), task, std::move(parts), nullptr, WholeBody,
              std::move(call), std::move(done));
    return OkStatus();
  }
  ASSIGN_OR_RETURN(handlers::TensorHandler * handler,
                   prediction.handle->ForTensors());
  ASSIGN_OR_RETURN(PredictionInputs inputs,
                   ReadTensors(std::move(parts), handler->inputs()));
  StampParsed(call);
  StartTensors(std::move(prediction), handler, std::move(inputs), {},
               std::move(call), std::move(done));
  return OkStatus();
}

Status CheckExplains(const Prediction& prediction) {
  if (prediction.model.python != nullptr) return OkStatus();
  return Unimplemented(
             "graphs are not explained: that needs Captum, which is Python; "
             "ask for predictions, or archive the model with a handler in "
             "Python")
      .Because("not_explained");
}

Status StartExplainedTensors(Prediction prediction, std::string body,
                             PredictionCall call, PredictionDone done) {
  RETURN_IF_ERROR(CheckExplains(prediction));
  call.explain = true;
  done = Measured(prediction, call, std::move(done));
  return StartEnveloped(std::move(prediction), "tensors", std::move(body),
                        std::move(call), std::move(done));
}

Status StartInstances(Prediction prediction, std::string body,
                      PredictionCall call, PredictionDone done) {
  if (call.explain) RETURN_IF_ERROR(CheckExplains(prediction));
  done = Measured(prediction, call, std::move(done));
  if (prediction.model.python != nullptr) {
    return StartEnveloped(std::move(prediction), "instances", std::move(body),
                          std::move(call), std::move(done));
  }
  if (handlers::TaskHandler* const task = prediction.handle->task()) {
    ASSIGN_OR_RETURN(std::vector<handlers::TaskPart> parts,
                     ReadTaskInstances(body));
    StampParsed(call);
    StartTask(
        std::move(prediction), task, std::move(parts), nullptr,
        [](handlers::TaskResponse response) {
          return PredictionsBody(response);
        },
        std::move(call), std::move(done));
    return OkStatus();
  }
  ASSIGN_OR_RETURN(handlers::TensorHandler * handler,
                   prediction.handle->ForTensors());
  ASSIGN_OR_RETURN(
      const Json json,
      ParseJson(body, {.max_depth = 16, .max_values = 50'000'000}));
  ASSIGN_OR_RETURN(PredictionInputs inputs,
                   ReadInstances(json, handler->inputs()));
  inputs.is_row = false;
  StampParsed(call);
  StartTensors(std::move(prediction), handler, std::move(inputs),
               {"{\"predictions\":", "}"}, std::move(call), std::move(done));
  return OkStatus();
}

}  // namespace millrace::server::torchserve
