// Request metrics and the access log. Metric labels hold the route's pattern,
// not the path, so that no client can make series.
#include "server/http/observer.h"

#include <algorithm>
#include <cmath>

#include "config/base/log.h"

namespace millrace::server::http {
namespace {

constexpr std::string_view kNoRoute = "none";

// To microseconds, for people who read the log.
double Rounded(double seconds) { return std::round(seconds * 1e6) / 1e6; }

}  // namespace

Observer::Observer(MetricRegistry* registry,
                   std::span<const std::string_view> patterns, bool access_log)
    : access_log_(access_log) {
  for (std::string_view pattern : patterns) {
    const auto known = std::find_if(
        routes_.begin(), routes_.end(),
        [&](const Route& route) { return route.pattern == pattern; });
    if (known == routes_.end()) {
      routes_.push_back({std::string(pattern), {registry, pattern}});
    }
  }
  routes_.push_back({std::string(kNoRoute), {registry, kNoRoute}});
  if (registry == nullptr) return;
  connections = registry->AddGauge("millrace_http_connections",
                                   "HTTP connections open now.");
  body_bytes = registry->AddGauge(
      "millrace_http_body_bytes",
      "Bytes of request bodies received and not yet read by a handler.");
  connections_refused = registry->AddCounter(
      "millrace_http_connections_refused_total",
      "Connections answered 503 because max_connections were open.");
}

void Observer::RequestEnded(const Ended& ended) const {
  const Route* route = &routes_.back();
  for (const Route& each : routes_) {
    if (each.pattern == ended.pattern) route = &each;
  }
  const double seconds = ended.trace->Seconds(Stage::kAccepted, Stage::kEnded);
  route->metrics.Ended(ended.outcome, seconds);
  if (!access_log_) return;
  static const Exchange::Facts kNoFacts;
  const Exchange::Facts& facts =
      ended.facts != nullptr ? *ended.facts : kNoFacts;
  LogInfo("request", {{"id", ended.trace->request_id},
                      {"peer", ended.peer},
                      {"method", ended.method},
                      {"path", ended.path},
                      {"status", ended.status},
                      {"bytes", ended.body_bytes},
                      {"duration_s", Rounded(seconds)},
                      {"ttft_s", Rounded(ended.trace->Seconds(
                                     Stage::kAccepted, Stage::kFirstToken))},
                      {"model", facts.model},
                      {"prompt_tokens", facts.prompt_tokens},
                      {"completion_tokens", facts.completion_tokens},
                      {"outcome", OutcomeName(ended.outcome)}});
}

}  // namespace millrace::server::http
