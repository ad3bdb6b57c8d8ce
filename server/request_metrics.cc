// The series of a route appear with its first request, those of inference at
// the start: most routes are never asked, and each has some twenty lines. All
// outcomes appear at once, so that a rate over one that has not happened yet is
// zero rather than missing.
#include "server/request_metrics.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <string>

namespace millrace::server {
namespace {

constexpr std::string_view kFromTheStart[] = {
    "/v1/chat/completions", "/v1/completions",       "/v2/models/{id}/infer",
    "grpc/ModelInfer",      "grpc/ModelStreamInfer",
};

}  // namespace

struct RequestMetrics::Series {
  std::once_flag once;
  Counter requests[static_cast<int>(Outcome::kCount)];
  Histogram duration;
};

std::string_view OutcomeName(Outcome outcome) {
  switch (outcome) {
    case Outcome::kOk:
      return "ok";
    case Outcome::kClientError:
      return "client_error";
    case Outcome::kRejected:
      return "rejected";
    case Outcome::kTimeout:
      return "timeout";
    case Outcome::kCancelled:
      return "cancelled";
    case Outcome::kError:
    case Outcome::kCount:
      break;
  }
  return "error";
}

Outcome OutcomeOfHttpStatus(int status) {
  if (status < 400) return Outcome::kOk;
  if (status == 429 || status == 503) return Outcome::kRejected;
  if (status == 408 || status == 504) return Outcome::kTimeout;
  if (status == 499) return Outcome::kCancelled;
  return status < 500 || status == 501 ? Outcome::kClientError
                                       : Outcome::kError;
}

void AddError(const Status& status, LogFieldList& fields) {
  if (status.ok()) return;
  fields.AddText("error_kind", status.reason().empty()
                                   ? StatusCodeName(status.code())
                                   : status.reason());
  fields.AddText("error_field", status.field());
  fields.AddText("error", status.message());
}

void AddStages(const Trace& trace, LogFieldList& fields) {
  const auto add = [&](const char* name, Stage from, Stage to) {
    const double seconds = trace.Seconds(from, to);
    // To microseconds, for people who read the log.
    if (seconds >= 0) fields.Add(name, std::round(seconds * 1e6) / 1e6);
  };
  const bool is_text = trace.Seconds(Stage::kAccepted, Stage::kFirstToken) >= 0;
  add("parse_s", Stage::kAccepted, Stage::kSubmitted);
  add("queue_s", Stage::kSubmitted, Stage::kScheduled);
  if (is_text) {
    add("ttft_s", Stage::kAccepted, Stage::kFirstToken);
    add("prefill_s", Stage::kScheduled, Stage::kFirstToken);
    add("decode_s", Stage::kFirstToken, Stage::kEnded);
  } else {
    add("compute_s", Stage::kScheduled, Stage::kEnded);
  }
}

RequestMetrics::RequestMetrics(MetricRegistry* registry, std::string_view route)
    : registry_(registry), route_(route), series_(std::make_shared<Series>()) {
  const bool from_the_start =
      std::find(std::begin(kFromTheStart), std::end(kFromTheStart), route) !=
      std::end(kFromTheStart);
  if (from_the_start) Register();
}

void RequestMetrics::Register() const {
  if (registry_ == nullptr) return;
  std::call_once(series_->once, [this] {
    for (int i = 0; i < static_cast<int>(Outcome::kCount); ++i) {
      series_->requests[i] = registry_->AddCounter(
          "millrace_requests_total",
          "Requests by route and how they ended; 'rejected' means no place, "
          "loading or draining.",
          {{"route", route_},
           {"outcome", std::string(OutcomeName(static_cast<Outcome>(i)))}});
    }
    series_->duration = registry_->AddHistogram(
        "millrace_request_duration_seconds",
        "From a request's first byte to its answer's last.",
        LatencyBucketsSeconds(), {{"route", route_}});
  });
}

void RequestMetrics::Ended(Outcome outcome, double seconds,
                           const TraceContext* trace) const {
  Register();
  series_->requests[static_cast<int>(outcome)].Add();
  if (seconds < 0) return;
  series_->duration.Observe(seconds,
                            trace == nullptr ? "" : ExemplarId(*trace));
}

}  // namespace millrace::server
