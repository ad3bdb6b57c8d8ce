// Spans in the protobuf form of OTLP, written field by field: Debian 12 has no
// OpenTelemetry library, and eight messages are less than a generated copy of
// their schema.
//
// Source: opentelemetry-proto, trace/v1/trace.proto and its neighbours; the
// numbers of the fields stand in the source.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "config/base/trace_context.h"

namespace millrace::server {

struct OtlpAttribute {
  std::string_view name;
  std::variant<std::string_view, int64_t, double> value;
};

struct OtlpSpan {
  const TraceContext* trace = nullptr;  // its trace id and state
  TraceContext::SpanId span_id{};
  TraceContext::SpanId parent_id{};  // zeros: none
  std::string_view name;
  bool is_server = false;  // SERVER, else INTERNAL
  int64_t begin_ns = 0;    // Unix time
  int64_t end_ns = 0;
  bool failed = false;
  std::string_view error;  // of a failed one
  std::vector<OtlpAttribute> attributes;
};

// Appends the span as one field of ScopeSpans.
void AppendSpan(const OtlpSpan& span, std::string& spans);

struct OtlpResource {
  std::string service_name;
  std::vector<std::pair<std::string, std::string>> attributes;
};

// ExportTraceServiceRequest with all of `spans`, as AppendSpan made them.
std::string ExportRequest(const OtlpResource& resource,
                          std::string_view version, std::string_view spans);

}  // namespace millrace::server
