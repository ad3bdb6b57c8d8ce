// Traces of requests: reads the trace context when a request begins and exports
// its spans when it has ended. They are made of the same stamps as the access
// log.
//
//   POST /v1/chat/completions          SERVER, from first byte to last
//     parse      bytes, template, tokens, until the model's queue
//     queue      until a step or batch took it in
//     prefill    until the first token (a graph: compute, until the end)
//     decode     until the last token
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "config/base/clock.h"
#include "config/base/status.h"
#include "config/base/timeline.h"
#include "config/base/trace.h"
#include "server/tracing/otlp_exporter.h"

namespace millrace::server {

struct TracedRequest {
  std::string_view method;  // "POST", "gRPC"
  std::string_view route;   // "/v1/chat/completions", "grpc/ModelInfer"
  int http_status = 0;      // 0: none
  std::string_view model;   // empty: none
  int64_t prompt_tokens = -1;
  int64_t completion_tokens = -1;
  std::string_view outcome;
  bool failed = false;            // our error, not the client's
  const Status* error = nullptr;  // or null
  const Trace* trace = nullptr;   // never null
};

class RequestTraces {
 public:
  // `exporter` may be null: no spans are sent. `timeline` may be null; else
  // it gets the requests that end while a capture runs.
  RequestTraces(std::unique_ptr<OtlpExporter> exporter, Timeline* timeline,
                const Clock* clock);

  // Gives the request its place in the caller's trace or a new one. Without an
  // exporter only a caller's trace is taken over, for the log and the response.
  void Begin(std::string_view traceparent, std::string_view tracestate,
             Trace& trace) const;
  void Ended(const TracedRequest& request) const;

 private:
  void Export(const TracedRequest& request) const;
  void Show(const TracedRequest& request) const;

  const std::unique_ptr<OtlpExporter> exporter_;
  Timeline* const timeline_;
  const Clock* const clock_;
  const int track_;
  // Relaxed: only uniqueness matters.
  mutable std::atomic<int64_t> num_shown_{0};
};

}  // namespace millrace::server
