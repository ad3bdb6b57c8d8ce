// Where a request stands in a distributed trace: W3C Trace Context, header
// traceparent, version 00.
//
//   traceparent: 00-<32 hex: trace id>-<16 hex: parent id>-<2 hex: flags>
//
// Source: www.w3.org/TR/trace-context, section 3.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace millrace {

struct TraceContext {
  using TraceId = std::array<uint8_t, 16>;
  using SpanId = std::array<uint8_t, 8>;

  TraceId trace_id{};
  SpanId parent_id{};  // the caller's span; zeros: there is none
  SpanId span_id{};    // of the request itself
  bool sampled = true;
  std::string state;  // header tracestate, handed on as it came

  // False: the request is in no trace.
  bool valid() const { return span_id != SpanId{}; }
  bool has_parent() const { return parent_id != SpanId{}; }
};

// The caller's trace, with a new span id of our own. Without a header, or with
// one that is malformed, a new trace begins, as section 3.2 asks for.
TraceContext BeginTrace(std::string_view traceparent,
                        std::string_view tracestate);
// Only whether the header names a trace.
bool IsTraceparent(std::string_view traceparent);

// The header that hands our own span on as the parent.
std::string Traceparent(const TraceContext& context);
// 32 lower-case hexadecimal digits.
std::string TraceIdText(const TraceContext& context);

// The same where the trace is kept somewhere, as its sampled flag says; empty:
// the request is in no trace, or in one that is not sampled.
std::string ExemplarId(const TraceContext& context);

// A span id that is not zero, from the system's random source.
TraceContext::SpanId NewSpanId();

}  // namespace millrace
