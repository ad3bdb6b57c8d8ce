// Request metrics and the access log. A reader would guess that metric labels
// hold the path: they hold the route's pattern, so that no client can make
// series.
#include "server/http/observer.h"

#include <algorithm>

#include "config/base/log.h"

namespace millrace::server::http {
namespace {

constexpr std::string_view kNoRoute = "none";

}  // namespace

Observer::Observer(MetricRegistry* registry,
                   std::span<const std::string_view> patterns, bool access_log)
    : access_log_(access_log) {
  for (std::string_view pattern : patterns) {
    const auto known = std::find_if(
        routes_.begin(), routes_.end(),
        [&](const RouteMetrics& route) { return route.pattern == pattern; });
    if (known == routes_.end()) {
      routes_.emplace_back().pattern = std::string(pattern);
    }
  }
  routes_.emplace_back().pattern = std::string(kNoRoute);
  if (registry == nullptr) return;
  for (RouteMetrics& route : routes_) {
    for (int i = 0; i < static_cast<int>(Outcome::kCount); ++i) {
      const std::string outcome(OutcomeName(static_cast<Outcome>(i)));
      route.requests[i] = registry->AddCounter(
          "millrace_requests_total",
          "HTTP requests by route and how they ended; 'rejected' means no "
          "place, loading or draining.",
          {{"route", route.pattern}, {"outcome", outcome}});
    }
    route.duration = registry->AddHistogram(
        "millrace_request_duration_seconds",
        "From a request's first byte to its answer's last.",
        LatencyBucketsSeconds(), {{"route", route.pattern}});
  }
  connections = registry->AddGauge("millrace_http_connections",
                                   "HTTP connections open now.");
  connections_refused = registry->AddCounter(
      "millrace_http_connections_refused_total",
      "Connections answered 503 because max_connections were open.");
}

void Observer::RequestEnded(const Ended& ended) const {
  const RouteMetrics* metrics = &routes_.back();
  for (const RouteMetrics& route : routes_) {
    if (route.pattern == ended.pattern) metrics = &route;
  }
  metrics->requests[static_cast<int>(ended.outcome)].Add();
  const double seconds = ended.trace->Seconds(Stage::kAccepted, Stage::kEnded);
  if (seconds >= 0) metrics->duration.Observe(seconds);
  if (!access_log_) return;
  static const Exchange::Facts kNoFacts;
  const Exchange::Facts& facts =
      ended.facts != nullptr ? *ended.facts : kNoFacts;
  LogInfo(
      "request",
      {{"id", ended.trace->request_id},
       {"peer", ended.peer},
       {"method", ended.method},
       {"path", ended.path},
       {"status", ended.status},
       {"bytes", ended.body_bytes},
       {"duration_s", seconds},
       {"ttft_s", ended.trace->Seconds(Stage::kAccepted, Stage::kFirstToken)},
       {"model", facts.model},
       {"prompt_tokens", facts.prompt_tokens},
       {"completion_tokens", facts.completion_tokens},
       {"outcome", OutcomeName(ended.outcome)}});
}

}  // namespace millrace::server::http
