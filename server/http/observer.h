// Writes the access-log line and the metrics of each request when it has ended,
// both from the same stamps.
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/metrics.h"
#include "config/base/trace.h"
#include "server/auth.h"
#include "server/http/exchange.h"
#include "server/tracing/request_traces.h"

namespace millrace::server::http {

class Observer {
 public:
  // One set of metrics for each route pattern and one for requests that found
  // no route. `registry` and `traces` may be null; both outlive it.
  Observer(MetricRegistry* registry, const RequestTraces* traces,
           std::span<const std::string_view> patterns, bool access_log,
           const std::vector<std::string>& unlogged_paths);

  struct Ended {
    std::string_view pattern;  // empty: no route
    std::string_view method;
    std::string_view path;
    std::string_view peer;
    const Caller* caller = nullptr;  // null: no key was wanted
    int status = 0;                  // 0: nothing was answered
    int64_t body_bytes = 0;
    Outcome outcome = Outcome::kOk;
    const Exchange::Facts* facts = nullptr;  // neither is ever null
    const Trace* trace = nullptr;
  };
  void RequestEnded(const Ended& ended) const;

  Counter responses_2xx;
  Counter responses_4xx;
  Counter responses_5xx;
  Gauge connections;
  Counter connections_refused;
  Gauge sockets;
  Counter socket_messages;
  Counter sockets_refused;
  Gauge body_bytes;  // set at each scrape

 private:
  using ByPattern = std::map<std::string, RequestMetrics, std::less<>>;
  void Tell(std::string_view pattern, const Ended& ended) const;

  ByPattern metrics_;
  const RequestTraces* const traces_;
  const bool access_log_;
  const std::vector<std::string> unlogged_paths_;
};

}  // namespace millrace::server::http
