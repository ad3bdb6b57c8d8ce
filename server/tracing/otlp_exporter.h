// Sends spans to a collector by OTLP/HTTP (protobuf), a batch a second, from a
// thread of its own. Requests never wait for it: the queue is bounded, and what
// finds it full is dropped and counted, as are batches that the collector does
// not take after some tries.
//
// Source: opentelemetry.io, "OTLP Exporter Configuration" and the protocol's
// specification, section OTLP/HTTP.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "config/base/metrics.h"
#include "config/base/mutex.h"
#include "config/base/status.h"
#include "config/environment.h"
#include "server/tracing/otlp_message.h"

namespace millrace::server {

struct OtlpOptions {
  std::string host;  // empty: nothing is exported
  std::string port;
  std::string path;
  std::vector<std::pair<std::string, std::string>> headers;
  OtlpResource resource;
};

// From the setting otlp_endpoint, else from OTEL_EXPORTER_OTLP_TRACES_ENDPOINT
// (the whole URL) or OTEL_EXPORTER_OTLP_ENDPOINT (without v1/traces, as the
// setting); with OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES,
// OTEL_EXPORTER_OTLP_TRACES_HEADERS or else OTEL_EXPORTER_OTLP_HEADERS, and
// OTEL_SDK_DISABLED. Pairs are percent-decoded; those that are no header or no
// UTF-8 are left out, which the log says. INVALID_ARGUMENT for an endpoint that
// is no http:// URL.
StatusOr<OtlpOptions> ReadOtlpOptions(const std::string& endpoint,
                                      const config::Environment& environment);

// Thread-safe.
class OtlpExporter {
 public:
  OtlpExporter(OtlpOptions options, MetricRegistry* registry);
  // Sends what is left. Takes two seconds at most, a batch that is under way
  // included, but for the resolution of the collector's name.
  ~OtlpExporter();

  // The spans of one request, as AppendSpan made them.
  void Add(std::string spans, int num_spans);

 private:
  struct Item {
    std::string spans;
    int num_spans = 0;
  };

  // Until when a batch that began at `began` may be on its way.
  std::chrono::steady_clock::time_point LimitOf(
      std::chrono::steady_clock::time_point began);
  void Run();
  // The batch, several times where the collector asks for it.
  void Deliver(const std::vector<Item>& batch);
  bool Pause(int ms);  // false: stopping

  const OtlpOptions options_;
  Counter exported_;
  Counter dropped_full_;
  Counter dropped_failed_;
  Mutex mu_;
  CondVar wake_;
  std::vector<Item> queue_ GUARDED_BY(mu_);
  bool stopping_ GUARDED_BY(mu_) = false;
  // What is sent is over by then, once it stops.
  std::chrono::steady_clock::time_point stop_by_ GUARDED_BY(mu_) =
      std::chrono::steady_clock::time_point::max();
  std::thread thread_;
};

}  // namespace millrace::server
