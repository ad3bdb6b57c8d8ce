// Names of attributes follow OpenTelemetry's semantic conventions for HTTP
// servers and generative AI (1.2x).
#include "server/tracing/request_traces.h"

#include <chrono>
#include <utility>

namespace millrace::server {
namespace {

int64_t StampOf(const Trace& trace, Stage stage) {
  return trace.stamps[static_cast<size_t>(stage)].load(
      std::memory_order_relaxed);
}

}  // namespace

RequestTraces::RequestTraces(std::unique_ptr<OtlpExporter> exporter,
                             Timeline* timeline, const Clock* clock)
    : exporter_(std::move(exporter)),
      timeline_(timeline),
      clock_(clock),
      track_(timeline == nullptr ? 0 : timeline->Track("server", "requests")) {}

void RequestTraces::Begin(std::string_view traceparent,
                          std::string_view tracestate, Trace& trace) const {
  if (exporter_ == nullptr &&
      (traceparent.empty() || !IsTraceparent(traceparent))) {
    return;
  }
  trace.context = BeginTrace(traceparent, tracestate);
}

void RequestTraces::Ended(const TracedRequest& request) const {
  const TraceContext& context = request.trace->context;
  if (exporter_ != nullptr && context.valid() && context.sampled) {
    Export(request);
  }
  if (timeline_ != nullptr && timeline_->on()) Show(request);
}

// Requests that began before the capture are shown from their true beginning.
void RequestTraces::Show(const TracedRequest& request) const {
  const Trace& trace = *request.trace;
  const int64_t id = num_shown_.fetch_add(1, std::memory_order_relaxed) + 1;
  std::vector<TimelineSlice> slices;
  const auto add = [&](std::string_view name, Stage from, Stage to) {
    const int64_t begin = StampOf(trace, from);
    const int64_t end = StampOf(trace, to);
    if (begin == 0 || end == 0) return;
    slices.push_back({.track = track_,
                      .name = name,
                      .begin = Clock::Time(Clock::Duration(begin)),
                      .end = Clock::Time(Clock::Duration(end)),
                      .id = id});
  };
  add("request", Stage::kAccepted, Stage::kEnded);
  if (slices.empty()) return;
  slices[0].label = std::string(request.method)
                        .append(" ")
                        .append(request.route)
                        .append(" ")
                        .append(trace.request_id);
  add("parse", Stage::kAccepted, Stage::kSubmitted);
  add("queue", Stage::kSubmitted, Stage::kScheduled);
  if (StampOf(trace, Stage::kFirstToken) != 0) {
    add("prefill", Stage::kScheduled, Stage::kFirstToken);
    add("decode", Stage::kFirstToken, Stage::kEnded);
  } else {
    add("compute", Stage::kScheduled, Stage::kEnded);
  }
  timeline_->Add(std::move(slices));
}

void RequestTraces::Export(const TracedRequest& request) const {
  const Trace& trace = *request.trace;
  const int64_t offset =
      std::chrono::duration_cast<std::chrono::nanoseconds>(
          std::chrono::system_clock::now().time_since_epoch())
          .count() -
      clock_->Now().time_since_epoch().count();
  const int64_t begin = StampOf(trace, Stage::kAccepted);
  const int64_t end = StampOf(trace, Stage::kEnded);
  if (begin == 0) return;

  const std::string name =
      std::string(request.method).append(" ").append(request.route);
  OtlpSpan root;
  root.trace = &trace.context;
  root.span_id = trace.context.span_id;
  root.parent_id = trace.context.parent_id;
  root.name = name;
  root.is_server = true;
  root.begin_ns = begin + offset;
  root.end_ns = end + offset;
  root.failed = request.failed;
  if (request.error != nullptr) root.error = request.error->message();
  auto& attributes = root.attributes;
  if (request.method == "gRPC") {
    attributes.push_back({"rpc.system", std::string_view("grpc")});
  } else {
    attributes.push_back({"http.request.method", request.method});
  }
  attributes.push_back({"http.route", request.route});
  attributes.push_back(
      {"millrace.request_id", std::string_view(trace.request_id)});
  attributes.push_back({"millrace.outcome", request.outcome});
  if (request.http_status > 0) {
    attributes.push_back(
        {"http.response.status_code", int64_t{request.http_status}});
  }
  if (!request.model.empty()) {
    attributes.push_back({"gen_ai.request.model", request.model});
  }
  if (request.prompt_tokens >= 0) {
    attributes.push_back({"gen_ai.usage.input_tokens", request.prompt_tokens});
    attributes.push_back(
        {"gen_ai.usage.output_tokens", request.completion_tokens});
  }
  if (request.error != nullptr && !request.error->ok()) {
    attributes.push_back({"error.type", std::string_view(StatusCodeName(
                                            request.error->code()))});
  }
  std::string spans;
  int num_spans = 1;
  AppendSpan(root, spans);

  const auto stage = [&](const char* stage_name, int64_t from, int64_t to) {
    if (from == 0 || to == 0) return;
    OtlpSpan span;
    span.trace = &trace.context;
    span.span_id = NewSpanId();
    span.parent_id = trace.context.span_id;
    span.name = stage_name;
    span.begin_ns = from + offset;
    span.end_ns = to + offset;
    AppendSpan(span, spans);
    ++num_spans;
  };
  const int64_t submitted = StampOf(trace, Stage::kSubmitted);
  const int64_t scheduled = StampOf(trace, Stage::kScheduled);
  const int64_t first = StampOf(trace, Stage::kFirstToken);
  stage("parse", begin, submitted);
  stage("queue", submitted, scheduled);
  if (first != 0) {
    stage("prefill", scheduled, first);
    stage("decode", first, end);
  } else {
    stage("compute", scheduled, end);
  }
  exporter_->Add(std::move(spans), num_spans);
}

}  // namespace millrace::server
