// Outcomes are named as on the HTTP side, by way of the status' HTTP number, so
// that one alert covers both wires.
#include "server/grpc/recorder.h"

#include <string_view>

#include "config/base/log.h"
#include "server/error_map.h"

namespace millrace::server {
namespace {

constexpr std::string_view kRoutes[] = {
    "grpc/ServerLive",
    "grpc/ServerReady",
    "grpc/ModelReady",
    "grpc/ServerMetadata",
    "grpc/ModelMetadata",
    "grpc/ModelInfer",
    "grpc/ModelStreamInfer",
    "grpc/ModelConfig",
    "grpc/ModelStatistics",
    "grpc/RepositoryIndex",
    "grpc/RepositoryModelLoad",
    "grpc/RepositoryModelUnload",
    "grpc/SharedMemory",
    "grpc/TraceSetting",
    "grpc/LogSettings",
    "grpc/TorchServePing",
    "grpc/TorchServePredict",
    "grpc/TorchServeManage",
    "grpc/none",
};
static_assert(std::size(kRoutes) == static_cast<size_t>(GrpcRoute::kCount));

Outcome OutcomeOf(const Status& status) {
  return status.ok() ? Outcome::kOk : OutcomeOfHttpStatus(HttpStatusOf(status));
}

void AddCall(GrpcRoute route, const Status& status, LogFieldList& fields) {
  fields.Add("method", "gRPC");
  fields.Add("path", kRoutes[static_cast<size_t>(route)]);
  fields.Add("status", StatusCodeName(status.code()));
}

}  // namespace

std::string_view GrpcRouteName(GrpcRoute route) {
  return kRoutes[static_cast<size_t>(route)];
}

Recorder::Recorder(MetricRegistry* registry, const RequestTraces* traces,
                   bool access_log)
    : traces_(traces), access_log_(access_log) {
  for (const std::string_view route : kRoutes) {
    metrics_.emplace_back(registry, route);
  }
}

void Recorder::Count(GrpcRoute route, const Status& status,
                     std::string_view peer) const {
  const Outcome outcome = OutcomeOf(status);
  metrics_[static_cast<size_t>(route)].Ended(outcome, -1);
  if (!access_log_ || status.ok()) return;
  LogFieldList fields;
  fields.Add("peer", peer);
  AddCall(route, status, fields);
  fields.Add("outcome", OutcomeName(outcome));
  AddError(status, fields);
  LogInfo("request", fields);
}

void Recorder::Record(const Ended& ended) const {
  const Trace& trace = *ended.trace;
  const double seconds = trace.Seconds(Stage::kAccepted, Stage::kEnded);
  const Outcome outcome = OutcomeOf(ended.status);
  metrics_[static_cast<size_t>(ended.route)].Ended(outcome, seconds,
                                                   &trace.context);
  const bool has_tokens = ended.usage.prompt_tokens > 0;
  if (traces_ != nullptr) {
    traces_->Ended(
        {.method = "gRPC",
         .route = kRoutes[static_cast<size_t>(ended.route)],
         .model = ended.model,
         .prompt_tokens = has_tokens ? ended.usage.prompt_tokens : -1,
         .completion_tokens = has_tokens ? ended.usage.completion_tokens : -1,
         .outcome = OutcomeName(outcome),
         .failed = outcome == Outcome::kError || outcome == Outcome::kTimeout,
         .error = ended.status.ok() ? nullptr : &ended.status,
         .trace = &trace});
  }
  if (!access_log_ || !LogEnabled(LogLevel::kInfo)) return;
  LogFieldList fields;
  fields.Add("id", trace.request_id);
  if (trace.context.valid()) {
    fields.Add("trace_id", TraceIdText(trace.context));
  }
  fields.Add("peer", ended.peer);
  if (ended.caller != nullptr && !ended.caller->id.empty()) {
    fields.Add("tenant", ended.caller->tenant->name());
    fields.Add("key", ended.caller->id);
  }
  AddCall(ended.route, ended.status, fields);
  fields.Add("duration_s", seconds);
  AddStages(trace, fields);
  fields.AddText("model", ended.model);
  // A prompt has one token at least: 0 says that there was none.
  if (has_tokens) {
    fields.Add("prompt_tokens", ended.usage.prompt_tokens);
    fields.Add("completion_tokens", ended.usage.completion_tokens);
  }
  fields.Add("outcome", OutcomeName(outcome));
  AddError(ended.status, fields);
  LogInfo("request", fields);
}

}  // namespace millrace::server
