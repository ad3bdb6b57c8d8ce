// Protobuf's wire format (protobuf.dev, "Encoding"): a field is a varint of its
// number and kind, then a varint, eight bytes, or a length and as many bytes.
#include "server/tracing/otlp_message.h"

#include <algorithm>
#include <bit>
#include <span>

namespace millrace::server {
namespace {

enum class Kind : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2 };

void AppendVarint(uint64_t value, std::string& out) {
  while (value >= 0x80) {
    out.push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out.push_back(static_cast<char>(value));
}

void AppendTag(uint32_t field, Kind kind, std::string& out) {
  AppendVarint(field << 3 | static_cast<uint32_t>(kind), out);
}

void AppendInt(uint32_t field, uint64_t value, std::string& out) {
  AppendTag(field, Kind::kVarint, out);
  AppendVarint(value, out);
}

void AppendFixed64(uint32_t field, uint64_t value, std::string& out) {
  AppendTag(field, Kind::kFixed64, out);
  for (int i = 0; i < 8; ++i) out.push_back(static_cast<char>(value >> 8 * i));
}

void AppendBytes(uint32_t field, std::string_view bytes, std::string& out) {
  AppendTag(field, Kind::kBytes, out);
  AppendVarint(bytes.size(), out);
  out += bytes;
}

std::string_view View(std::span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// KeyValue {1: key, 2: AnyValue {1: string, 3: int, 4: double}}.
void AppendAttribute(uint32_t field, const OtlpAttribute& attribute,
                     std::string& out) {
  std::string value;
  if (const auto* text = std::get_if<std::string_view>(&attribute.value)) {
    AppendBytes(1, *text, value);
  } else if (const auto* number = std::get_if<int64_t>(&attribute.value)) {
    AppendInt(3, static_cast<uint64_t>(*number), value);
  } else {
    AppendFixed64(4, std::bit_cast<uint64_t>(std::get<double>(attribute.value)),
                  value);
  }
  std::string pair;
  AppendBytes(1, attribute.name, pair);
  AppendBytes(2, value, pair);
  AppendBytes(field, pair, out);
}

}  // namespace

// Span {1: trace_id, 2: span_id, 3: trace_state, 4: parent_span_id, 5: name,
// 6: kind, 7: start, 8: end, 9: attributes, 15: Status {2: message, 3: code}}.
void AppendSpan(const OtlpSpan& span, std::string& spans) {
  constexpr uint64_t kInternal = 1;
  constexpr uint64_t kServer = 2;
  constexpr uint64_t kError = 2;
  std::string message;
  AppendBytes(1, View(span.trace->trace_id), message);
  AppendBytes(2, View(span.span_id), message);
  if (!span.trace->state.empty()) AppendBytes(3, span.trace->state, message);
  if (span.parent_id != TraceContext::SpanId{}) {
    AppendBytes(4, View(span.parent_id), message);
  }
  AppendBytes(5, span.name, message);
  AppendInt(6, span.is_server ? kServer : kInternal, message);
  AppendFixed64(7, static_cast<uint64_t>(span.begin_ns), message);
  AppendFixed64(8, static_cast<uint64_t>(std::max(span.end_ns, span.begin_ns)),
                message);
  for (const OtlpAttribute& attribute : span.attributes) {
    AppendAttribute(9, attribute, message);
  }
  if (span.failed) {
    std::string status;
    if (!span.error.empty()) AppendBytes(2, span.error, status);
    AppendInt(3, kError, status);
    AppendBytes(15, status, message);
  }
  AppendBytes(2, message, spans);  // ScopeSpans.spans
}

// {1: ResourceSpans {1: Resource {1: attributes}, 2: ScopeSpans {1: scope
// {1: name, 2: version}, 2: spans}}}.
std::string ExportRequest(const OtlpResource& resource,
                          std::string_view version, std::string_view spans) {
  std::string of_resource;
  AppendAttribute(1, {"service.name", resource.service_name}, of_resource);
  AppendAttribute(1, {"service.version", version}, of_resource);
  for (const auto& [name, value] : resource.attributes) {
    AppendAttribute(1, {name, value}, of_resource);
  }
  std::string scope;
  AppendBytes(1, "millrace", scope);
  AppendBytes(2, version, scope);
  std::string of_scope;
  AppendBytes(1, scope, of_scope);
  of_scope += spans;
  std::string all;
  AppendBytes(1, of_resource, all);
  AppendBytes(2, of_scope, all);
  std::string request;
  AppendBytes(1, all, request);
  return request;
}

}  // namespace millrace::server
