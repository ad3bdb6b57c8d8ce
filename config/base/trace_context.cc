#include "config/base/trace_context.h"

#include <sys/random.h>

#include <algorithm>
#include <span>

namespace millrace {
namespace {

constexpr size_t kLength = 2 + 1 + 32 + 1 + 16 + 1 + 2;
constexpr size_t kTraceIdAt = 3;
constexpr size_t kParentAt = 36;
constexpr size_t kFlagsAt = 53;
constexpr size_t kMaxState = 512;  // section 3.3.1.5: as much is handed on

// Lower-case only, section 3.2.
int DigitOf(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

// False unless `text` begins with so many digits as `bytes` take.
bool ReadHex(std::string_view text, std::span<uint8_t> bytes) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    const int high = DigitOf(text[2 * i]);
    const int low = DigitOf(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    bytes[i] = static_cast<uint8_t>(high * 16 + low);
  }
  return true;
}

std::string Hex(std::span<const uint8_t> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : bytes) {
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 15]);
  }
  return text;
}

bool IsZero(std::span<const uint8_t> bytes) {
  return std::ranges::all_of(bytes, [](uint8_t byte) { return byte == 0; });
}

void FillRandom(std::span<uint8_t> bytes) {
  // Cannot fail for so few bytes once the system is up.
  if (getrandom(bytes.data(), bytes.size(), 0) < 0 || IsZero(bytes)) {
    bytes.back() = 1;
  }
}

bool Read(std::string_view text, TraceContext& context) {
  // A later version may be longer, section 3.2.4; ff is none.
  if (text.size() < kLength || text.starts_with("ff")) return false;
  if (text.starts_with("00") && text.size() != kLength) return false;
  if (text.size() > kLength && text[kLength] != '-') return false;
  uint8_t version[1];
  uint8_t flags[1];
  if (!ReadHex(text, version) || text[2] != '-' || text[kParentAt - 1] != '-' ||
      text[kFlagsAt - 1] != '-' ||
      !ReadHex(text.substr(kTraceIdAt), context.trace_id) ||
      !ReadHex(text.substr(kParentAt), context.parent_id) ||
      !ReadHex(text.substr(kFlagsAt), flags)) {
    return false;
  }
  context.sampled = (flags[0] & 1) != 0;
  return !IsZero(context.trace_id) && !IsZero(context.parent_id);
}

}  // namespace

TraceContext BeginTrace(std::string_view traceparent,
                        std::string_view tracestate) {
  TraceContext context;
  if (Read(traceparent, context)) {
    if (tracestate.size() <= kMaxState) context.state = tracestate;
  } else {
    context = TraceContext();
    FillRandom(context.trace_id);
  }
  context.span_id = NewSpanId();
  return context;
}

bool IsTraceparent(std::string_view traceparent) {
  TraceContext ignored;
  return Read(traceparent, ignored);
}

std::string Traceparent(const TraceContext& context) {
  return "00-" + Hex(context.trace_id) + "-" + Hex(context.span_id) +
         (context.sampled ? "-01" : "-00");
}

std::string TraceIdText(const TraceContext& context) {
  return Hex(context.trace_id);
}

std::string ExemplarId(const TraceContext& context) {
  return context.valid() && context.sampled ? TraceIdText(context)
                                            : std::string();
}

TraceContext::SpanId NewSpanId() {
  TraceContext::SpanId id;
  FillRandom(id);
  return id;
}

}  // namespace millrace
