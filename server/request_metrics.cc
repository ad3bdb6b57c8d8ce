// All outcomes are registered at once, so that a rate over one that has not
// happened yet is zero rather than missing.
#include "server/request_metrics.h"

#include <string>

namespace millrace::server {

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
  return status < 500 ? Outcome::kClientError : Outcome::kError;
}

void AddError(const Status& status, LogFieldList& fields) {
  if (status.ok()) return;
  fields.AddText("error_kind", status.reason().empty()
                                   ? StatusCodeName(status.code())
                                   : status.reason());
  fields.AddText("error_field", status.field());
  fields.AddText("error", status.message());
}

RequestMetrics::RequestMetrics(MetricRegistry* registry,
                               std::string_view route) {
  if (registry == nullptr) return;
  for (int i = 0; i < static_cast<int>(Outcome::kCount); ++i) {
    requests_[i] = registry->AddCounter(
        "millrace_requests_total",
        "Requests by route and how they ended; 'rejected' means no place, "
        "loading or draining.",
        {{"route", std::string(route)},
         {"outcome", std::string(OutcomeName(static_cast<Outcome>(i)))}});
  }
  duration_ = registry->AddHistogram(
      "millrace_request_duration_seconds",
      "From a request's first byte to its answer's last.",
      LatencyBucketsSeconds(), {{"route", std::string(route)}});
}

void RequestMetrics::Ended(Outcome outcome, double seconds) const {
  requests_[static_cast<int>(outcome)].Add();
  if (seconds >= 0) duration_.Observe(seconds);
}

}  // namespace millrace::server
