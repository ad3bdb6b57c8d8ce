// Outcomes are named as on the HTTP side, by way of the status' HTTP number, so
// that one alert covers both wires.
#include "server/grpc/recorder.h"

#include <string_view>

#include "config/base/log.h"
#include "server/error_map.h"

namespace millrace::server {
namespace {

constexpr std::string_view kRoutes[] = {
    "grpc/ServerLive",          "grpc/ServerReady",
    "grpc/ModelReady",          "grpc/ServerMetadata",
    "grpc/ModelMetadata",       "grpc/ModelInfer",
    "grpc/ModelStreamInfer",    "grpc/ModelConfig",
    "grpc/ModelStatistics",     "grpc/RepositoryIndex",
    "grpc/RepositoryModelLoad", "grpc/RepositoryModelUnload",
};
static_assert(std::size(kRoutes) == static_cast<size_t>(GrpcRoute::kCount));

Outcome OutcomeOf(const Status& status) {
  return status.ok() ? Outcome::kOk : OutcomeOfHttpStatus(HttpStatusOf(status));
}

}  // namespace

Recorder::Recorder(MetricRegistry* registry, bool access_log)
    : access_log_(access_log) {
  for (const std::string_view route : kRoutes) {
    metrics_.emplace_back(registry, route);
  }
}

void Recorder::Count(GrpcRoute route, const Status& status) const {
  metrics_[static_cast<size_t>(route)].Ended(OutcomeOf(status), -1);
}

void Recorder::Record(const Ended& ended) const {
  const Trace& trace = *ended.trace;
  const double seconds = trace.Seconds(Stage::kAccepted, Stage::kEnded);
  const Outcome outcome = OutcomeOf(ended.status);
  metrics_[static_cast<size_t>(ended.route)].Ended(outcome, seconds);
  if (!access_log_) return;
  LogInfo("request",
          {{"id", trace.request_id},
           {"peer", ended.peer},
           {"method", "gRPC"},
           {"path", kRoutes[static_cast<size_t>(ended.route)]},
           {"status", StatusCodeName(ended.status.code())},
           {"duration_s", seconds},
           {"ttft_s", trace.Seconds(Stage::kAccepted, Stage::kFirstToken)},
           {"model", ended.model},
           {"prompt_tokens", ended.usage.prompt_tokens},
           {"completion_tokens", ended.usage.completion_tokens},
           {"outcome", OutcomeName(outcome)}});
}

}  // namespace millrace::server
