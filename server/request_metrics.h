// How requests ended and how long they took, the same for every wire: the
// metrics millrace_requests_total and millrace_request_duration_seconds.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "config/base/log.h"
#include "config/base/metrics.h"
#include "config/base/status.h"
#include "config/base/trace.h"

namespace millrace::server {

// How a request ended, as metrics and the access log call it.
enum class Outcome {
  kOk,
  kClientError,  // 4xx but for the next two, and 501: what is not offered
  kRejected,     // 429 and 503: no place, loading, draining
  kTimeout,      // the request's deadline, or a client that stopped reading
  kCancelled,    // the client went away
  kError,        // ours
  kCount,
};
std::string_view OutcomeName(Outcome outcome);
Outcome OutcomeOfHttpStatus(int status);

// Why a request failed, for its line of the access log: error_kind (the reason,
// else the code), error_field and error. None for OK.
void AddError(const Status& status, LogFieldList& fields);

// What a request spent where, for its line of the access log, in seconds:
// parse_s until it reached the model's queue, queue_s there, then ttft_s (since
// its first byte), prefill_s and decode_s of text, or compute_s of tensors.
// What does not apply to the request is left out.
void AddStages(const Trace& trace, LogFieldList& fields);

// Of one route: an HTTP pattern ("/v1/models/:id") or "grpc/METHOD", never a
// path, so that no client can make series. Thread-safe.
class RequestMetrics {
 public:
  // `registry` may be null: nothing is counted; else it outlives the metrics.
  RequestMetrics(MetricRegistry* registry, std::string_view route);

  // Seconds from the request's first byte to its answer's last; negative:
  // unknown, only counted. `trace`: the request's, may be null.
  void Ended(Outcome outcome, double seconds,
             const TraceContext* trace = nullptr) const;

 private:
  struct Series;
  void Register() const;

  MetricRegistry* registry_;
  std::string route_;
  std::shared_ptr<Series> series_;  // shared by copies
};

}  // namespace millrace::server
