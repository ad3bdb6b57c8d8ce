#include "handlers/external/external.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "config/base/deadline.h"
#include "config/base/json.h"
#include "handlers/external/http_hints.h"
#include "handlers/named_tensors.h"
#include "models/tensor/strings.h"

namespace millrace::handlers {
namespace {

using Json = nlohmann::ordered_json;

// What the request says beside its tensors.
std::string ParametersOf(const SequencePlace& place) {
  Json parameters = Json::object();
  if (const auto* number = std::get_if<uint64_t>(&place.id)) {
    if (*number != 0) parameters["sequence_id"] = *number;
  } else if (const auto& text = std::get<std::string>(place.id);
             !text.empty()) {
    parameters["sequence_id"] = text;
  }
  if (place.start) parameters["sequence_start"] = true;
  if (place.end) parameters["sequence_end"] = true;
  return parameters.empty() ? std::string() : DumpJson(parameters);
}

StatusOr<TaskResponse> ResultsOf(StatusOr<TensorResponse> response) {
  RETURN_IF_ERROR(response.status());
  TaskResponse results;
  for (const NamedTensor& output : response->outputs) {
    if (output.tensor.dtype() == models::kString) {
      for (const std::string_view text : models::StringsIn(output.tensor)) {
        results.results.emplace_back(text);
      }
      continue;
    }
    if (output.tensor.dtype() != models::DType::kU8) {
      return Internal("the handler answered with '" + output.name +
                      "', which is neither BYTES nor UINT8")
          .Because("handler_error");
    }
    const std::string_view bytes(
        reinterpret_cast<const char*>(output.tensor.bytes()),
        static_cast<size_t>(output.tensor.num_bytes()));
    if (output.name == kHttpHints) {
      RETURN_IF_ERROR(ReadHttpHints(bytes, results));
      continue;
    }
    results.results.emplace_back(bytes);
    if (output.name.find('/') != std::string::npos) {  // "image/png"
      RETURN_IF_ERROR(CheckContentType(output.name));
      results.content_type = output.name;
    }
  }
  return results;
}

// What was declared may be left out, but is of its type and sizes. Nothing
// declared: anything.
Status CheckAnswer(const std::vector<models::TensorSpec>& declared,
                   const TensorResponse& response) {
  if (declared.empty()) return OkStatus();
  for (const NamedTensor& output : response.outputs) {
    const auto spec =
        std::ranges::find(declared, output.name, &models::TensorSpec::name);
    if (spec == declared.end()) {
      return Internal("gave '" + output.name +
                      "', which it did not declare; it declared " +
                      NamesOf(declared));
    }
    const models::Shape& shape = output.tensor.shape();
    bool fits = output.tensor.dtype() == spec->dtype &&
                (!spec->rank_known ||
                 static_cast<size_t>(shape.rank()) == spec->dims.size());
    for (size_t i = 0; fits && spec->rank_known && i < spec->dims.size(); ++i) {
      fits = spec->dims[i] < 0 || spec->dims[i] == shape[static_cast<int>(i)];
    }
    if (fits) continue;
    return Internal("gave '" + output.name + "' as " +
                    models::TypeText(output.tensor.dtype(), shape) +
                    " but declared " + spec->text);
  }
  return OkStatus();
}

}  // namespace

ExternalHandler::ExternalHandler(ExternalParts parts)
    : parts_(std::move(parts)), queue_(parts_.max_waiting) {}

ExternalHandler::~ExternalHandler() { Close(); }

StatusOr<std::unique_ptr<ExternalHandler>> ExternalHandler::Create(
    ExternalParts parts) {
  std::unique_ptr<ExternalHandler> handler(
      new ExternalHandler(std::move(parts)));
  const ExternalParts& of = handler->parts_;
  InstanceParts instance{.model = of.model,
                         .version = of.version,
                         .folder = of.folder,
                         .handlers_path = of.handlers_path,
                         .settings = of.settings.get(),
                         .queue = &handler->queue_,
                         .lender = of.lender,
                         .clock = of.clock,
                         .restarts = {},
                         .resident_bytes = {}};
  if (of.registry != nullptr) {
    instance.restarts = of.registry->AddCounter(
        "millrace_external_restarts_total",
        "Processes of an external handler that ended and were started again.",
        {{"model", of.model}, {"version", of.version}});
  }
  for (int i = 0; i < of.num_instances; ++i) {
    if (of.registry != nullptr) {
      instance.resident_bytes = of.registry->AddGauge(
          "millrace_external_resident_bytes",
          "Bytes that the process of an external handler has in memory; it is "
          "ended beyond memory_limit.",
          {{"model", of.model},
           {"version", of.version},
           {"instance", std::to_string(i)}});
    }
    handler->instances_.push_back(ExternalInstance::Start(instance, i));
  }
  for (const auto& each : handler->instances_) {
    StatusOr<HandlerPorts> ports = each->AwaitReady();
    RETURN_IF_ERROR(ports.status());
    handler->ports_ = *std::move(ports);
  }
  return handler;
}

void ExternalHandler::Close() {
  queue_.Close(Unavailable("the handler is leaving and takes no new requests")
                   .Because("draining")
                   .RetryAfterMs(1000));
}

Status ExternalHandler::Ready() const {
  Status status = OkStatus();
  for (const auto& each : instances_) {
    status = each->Ready();
    if (status.ok()) return status;
  }
  return status;
}

Status ExternalHandler::HasPlace() const { return queue_.Check(); }

void ExternalHandler::StartAt(SequencePlace place, TensorRequest request,
                              TensorHandler::Done done, std::stop_token stop) {
  const Status status = TryStart(place, request, done, std::move(stop));
  if (!status.ok()) done(status);
}

Status ExternalHandler::TryStart(const SequencePlace& place,
                                 TensorRequest& request,
                                 const TensorHandler::Done& done,
                                 std::stop_token stop) {
  ExternalJob job;
  job.parameters = ParametersOf(place);
  if (!ports_.inputs.empty()) {
    ASSIGN_OR_RETURN(
        std::vector<models::Tensor> ordered,
        InputsInOrder(std::move(request.inputs), ports_.inputs, parts_.model));
    for (size_t i = 0; i < ordered.size(); ++i) {
      RETURN_IF_ERROR(CheckFits(ports_.inputs[i], ordered[i], parts_.model));
      job.inputs.push_back({ports_.inputs[i].name, std::move(ordered[i])});
    }
  } else {
    job.inputs = std::move(request.inputs);
  }
  if (!ports_.outputs.empty()) {
    RETURN_IF_ERROR(
        OutputsWanted(request.outputs, ports_.outputs, parts_.model).status());
  }
  job.outputs = request.outputs;
  job.deadline =
      EarlierDeadline(request.deadline, request.timeout, *parts_.clock);
  job.stop = std::move(stop);
  // The bases give all that their handler does.
  return Submit(
      std::move(job), /*as_declared=*/true,
      [done,
       wanted = std::move(request.outputs)](StatusOr<TensorResponse> response) {
        if (response.ok() && !wanted.empty()) {
          std::erase_if(response->outputs, [&](const auto& output) {
            return std::ranges::find(wanted, output.name) == wanted.end();
          });
        }
        done(std::move(response));
      });
}

void ExternalHandler::Start(TaskRequest request, TaskHandler::Done done,
                            std::stop_token stop) {
  ExternalJob job;
  Json parameters =
      request.parameters != nullptr ? *request.parameters : Json::object();
  parameters["task"] = true;
  Json types = Json::array();
  for (const TaskPart& part : request.parts) {
    types.push_back(part.content_type);
    NamedTensor tensor{
        part.name.empty() ? "data" : part.name,
        models::Tensor::From<char>(models::DType::kU8,
                                   {static_cast<int64_t>(part.bytes.size())},
                                   std::span<const char>(part.bytes))};
    job.inputs.push_back(std::move(tensor));
  }
  if (!types.empty()) parameters["content_types"] = std::move(types);
  job.parameters = DumpJson(parameters);
  job.deadline = request.deadline;
  job.stop = std::move(stop);
  if (request.on_part) {
    job.part = [on_part = std::move(request.on_part)](TensorResponse part) {
      StatusOr<TaskResponse> results = ResultsOf(std::move(part));
      if (results.ok()) on_part(*std::move(results));
    };
  }
  const Status status = Submit(std::move(job), /*as_declared=*/false,
                               [done](StatusOr<TensorResponse> response) {
                                 done(ResultsOf(std::move(response)));
                               });
  if (!status.ok()) done(status);
}

Status ExternalHandler::Submit(ExternalJob job, bool as_declared,
                               TensorHandler::Done done) {
  RETURN_IF_ERROR(HasPlace());
  job.submitted = parts_.clock->Now();
  job.done = [this, as_declared, done = std::move(done),
              submitted = job.submitted](StatusOr<TensorResponse> response) {
    const Status fits = as_declared && response.ok()
                            ? CheckAnswer(ports_.outputs, *response)
                            : OkStatus();
    if (!fits.ok()) {
      response =
          fits.Prefixed("the handler of the model '" + parts_.model + "'");
    }
    // Shared because tasks of the pool can be copied.
    const auto held =
        std::make_shared<StatusOr<TensorResponse>>(std::move(response));
    Count(*held, parts_.clock->Now() - submitted);
    parts_.pool->Continue([done, held] { done(std::move(*held)); });
  };
  {
    MutexLock lock(mu_);
    ++in_flight_;
  }
  const Status pushed = queue_.Push(std::move(job));
  if (pushed.ok()) return pushed;
  MutexLock lock(mu_);
  --in_flight_;
  return pushed;
}

void ExternalHandler::Count(const StatusOr<TensorResponse>& response,
                            Clock::Duration took) {
  MutexLock lock(mu_);
  --in_flight_;
  if (!response.ok()) {
    ++counts_.num_failure;
    counts_.failure_time += took;
    return;
  }
  counts_.last_inference_ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(
          std::chrono::system_clock::now().time_since_epoch())
          .count();
  ++counts_.num_success;
  counts_.success_time += took;
  counts_.queue += response->batch.queue;
  counts_.compute += response->batch.compute_infer;
}

ExternalCounts ExternalHandler::counts() const {
  MutexLock lock(mu_);
  return counts_;
}

int64_t ExternalHandler::in_flight() const {
  MutexLock lock(mu_);
  return in_flight_;
}

}  // namespace millrace::handlers
