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
                   std::span<const std::string_view> patterns, bool access_log,
                   const std::vector<std::string>& unlogged_paths)
    : access_log_(access_log), unlogged_paths_(unlogged_paths) {
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
  if (!access_log_ || std::find(unlogged_paths_.begin(), unlogged_paths_.end(),
                                ended.path) != unlogged_paths_.end()) {
    return;
  }
  const Exchange::Facts& facts = *ended.facts;
  LogFieldList fields;
  fields.Add("id", ended.trace->request_id);
  fields.Add("peer", ended.peer);
  fields.AddText("method", ended.method);
  fields.AddText("path", ended.path);
  if (ended.status != 0) fields.Add("status", ended.status);
  fields.Add("bytes", ended.body_bytes);
  fields.Add("duration_s", Rounded(seconds));
  const double ttft =
      ended.trace->Seconds(Stage::kAccepted, Stage::kFirstToken);
  if (ttft >= 0) fields.Add("ttft_s", Rounded(ttft));
  fields.AddText("model", facts.model);
  if (facts.prompt_tokens >= 0) {
    fields.Add("prompt_tokens", facts.prompt_tokens);
    fields.Add("completion_tokens", facts.completion_tokens);
  }
  fields.Add("outcome", OutcomeName(ended.outcome));
  AddError(facts.error, fields);
  LogInfo("request", fields);
}

}  // namespace millrace::server::http
