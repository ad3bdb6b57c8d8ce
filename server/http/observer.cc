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

Observer::Observer(MetricRegistry* registry, const RequestTraces* traces,
                   std::span<const std::string_view> patterns, bool access_log,
                   const std::vector<std::string>& unlogged_paths)
    : traces_(traces),
      access_log_(access_log),
      unlogged_paths_(unlogged_paths) {
  for (std::string_view pattern : patterns) {
    metrics_.try_emplace(std::string(pattern), registry, pattern);
  }
  metrics_.try_emplace(std::string(kNoRoute), registry, kNoRoute);
  if (registry == nullptr) return;
  const auto responses = [&](const char* status) {
    return registry->AddCounter("millrace_http_responses_total",
                                "HTTP responses by the class of their status.",
                                {{"class", status}});
  };
  responses_2xx = responses("2xx");
  responses_4xx = responses("4xx");
  responses_5xx = responses("5xx");
  connections = registry->AddGauge("millrace_http_connections",
                                   "HTTP connections open now.");
  sockets =
      registry->AddGauge("millrace_sessions", "WebSocket sessions open now.");
  socket_messages =
      registry->AddCounter("millrace_session_messages_total",
                           "Messages that WebSocket sessions received.");
  sockets_refused = registry->AddCounter(
      "millrace_sessions_refused_total",
      "WebSocket sessions refused because max_sessions were open.");
  body_bytes = registry->AddGauge(
      "millrace_http_body_bytes",
      "Bytes of request bodies received and not yet read by a handler.");
  connections_refused = registry->AddCounter(
      "millrace_http_connections_refused_total",
      "Connections answered 503 because max_connections were open; those of "
      "scrapes and probes are answered.");
}

void Observer::Tell(std::string_view pattern, const Ended& ended) const {
  const Exchange::Facts& facts = *ended.facts;
  traces_->Ended({.method = ended.method,
                  .route = pattern,
                  .http_status = ended.status,
                  .model = facts.model,
                  .prompt_tokens = facts.prompt_tokens,
                  .completion_tokens = facts.completion_tokens,
                  .outcome = OutcomeName(ended.outcome),
                  .failed = ended.outcome == Outcome::kError ||
                            ended.outcome == Outcome::kTimeout,
                  .error = facts.error.ok() ? nullptr : &facts.error,
                  .trace = ended.trace});
}

void Observer::RequestEnded(const Ended& ended) const {
  auto found = metrics_.find(ended.pattern);
  if (found == metrics_.end()) found = metrics_.find(kNoRoute);
  const auto& [pattern, metrics] = *found;
  const double seconds = ended.trace->Seconds(Stage::kAccepted, Stage::kEnded);
  metrics.Ended(ended.outcome, seconds, &ended.trace->context);
  if (ended.status >= 500) {
    responses_5xx.Add();
  } else if (ended.status >= 400) {
    responses_4xx.Add();
  } else if (ended.status != 0) {
    responses_2xx.Add();
  }
  if (traces_ != nullptr) Tell(pattern, ended);
  if (!access_log_ || !LogEnabled(LogLevel::kInfo) ||
      std::find(unlogged_paths_.begin(), unlogged_paths_.end(), ended.path) !=
          unlogged_paths_.end()) {
    return;
  }
  const Exchange::Facts& facts = *ended.facts;
  LogFieldList fields;
  fields.Add("id", ended.trace->request_id);
  if (ended.trace->context.valid()) {
    fields.Add("trace_id", TraceIdText(ended.trace->context));
  }
  fields.Add("peer", ended.peer);
  if (ended.caller != nullptr && !ended.caller->id.empty()) {
    fields.Add("tenant", ended.caller->tenant->name());
    fields.Add("key", ended.caller->id);
  }
  fields.AddText("method", ended.method);
  fields.AddText("path", ended.path);
  if (ended.status != 0) fields.Add("status", ended.status);
  fields.Add("bytes", ended.body_bytes);
  fields.Add("duration_s", Rounded(seconds));
  AddStages(*ended.trace, fields);
  fields.AddText("model", facts.model);
  if (facts.prompt_tokens >= 0) {
    fields.Add("prompt_tokens", facts.prompt_tokens);
  }
  if (facts.completion_tokens >= 0) {
    fields.Add("completion_tokens", facts.completion_tokens);
  }
  fields.Add("outcome", OutcomeName(ended.outcome));
  AddError(facts.error, fields);
  LogInfo("request", fields);
}

}  // namespace millrace::server::http
