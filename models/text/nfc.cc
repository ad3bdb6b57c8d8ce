// utf8proc knows the characters: what each decomposes to, its class, what a
// pair composes to. The marks are ordered here and not by utf8proc, whose sort
// is quadratic in the length of a run of marks, and a request may be one such
// run.
// Source: UAX #15; the Unicode Standard, section 3.11.
#include "models/text/nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "config/base/status.h"

namespace millrace::models {
namespace {

constexpr auto kForm =
    static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
constexpr auto kApart =
    static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
// The code point before the first final consonant of Hangul. utf8proc takes it
// for one and drops it, so text is composed in parts that begin with it: it
// composes with nothing.
constexpr utf8proc_int32_t kNoFinal = 0x11a7;
// More than any character decomposes to canonically.
constexpr utf8proc_ssize_t kMostParts = 16;

int ClassOf(utf8proc_int32_t code) {
  return utf8proc_get_property(code)->combining_class;
}

// Of valid UTF-8.
std::vector<utf8proc_int32_t> Decompose(std::string_view text) {
  std::vector<utf8proc_int32_t> out;
  out.reserve(text.size() + kMostParts);
  const auto* at = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  for (auto left = static_cast<utf8proc_ssize_t>(text.size()); left > 0;) {
    utf8proc_int32_t code = 0;
    const utf8proc_ssize_t bytes = utf8proc_iterate(at, left, &code);
    CHECK(bytes > 0, "text to normalise is valid UTF-8");
    at += bytes;
    left -= bytes;
    utf8proc_int32_t parts[kMostParts];
    int boundary = 0;
    const utf8proc_ssize_t count =
        utf8proc_decompose_char(code, parts, kMostParts, kApart, &boundary);
    CHECK(count > 0 && count <= kMostParts, "a character has few parts");
    out.insert(out.end(), parts, parts + count);
  }
  return out;
}

void OrderMarks(std::vector<utf8proc_int32_t>& text) {
  for (auto begin = text.begin(); begin != text.end();) {
    const auto end = std::find_if(begin, text.end(),
                                  [](auto code) { return ClassOf(code) == 0; });
    std::stable_sort(begin, end,
                     [](auto a, auto b) { return ClassOf(a) < ClassOf(b); });
    begin = end == text.end() ? end : end + 1;
  }
}

void Append(utf8proc_int32_t code, std::string& out) {
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t n = utf8proc_encode_char(code, bytes);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(n));
}

}  // namespace

bool IsPlainlyNfc(std::string_view text) {
  // Below U+0300, whose first byte is 0xcc, nothing changes.
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<uint8_t>(c) < 0xcc; });
}

std::string ToNfd(std::string_view text) {
  std::vector<utf8proc_int32_t> codes = Decompose(text);
  OrderMarks(codes);
  std::string out;
  out.reserve(text.size() + codes.size());
  for (const utf8proc_int32_t code : codes) Append(code, out);
  return out;
}

std::string ToNfc(std::string_view text) {
  if (IsPlainlyNfc(text)) return std::string(text);
  std::vector<utf8proc_int32_t> codes = Decompose(text);
  OrderMarks(codes);
  std::string out;
  out.reserve(text.size());
  for (auto begin = codes.begin(); begin != codes.end();) {
    const auto end = std::find(begin + 1, codes.end(), kNoFinal);
    const utf8proc_ssize_t count =
        utf8proc_normalize_utf32(&*begin, end - begin, kForm);
    CHECK(count >= 0, "decomposed text composes");
    for (utf8proc_ssize_t i = 0; i < count; ++i) Append(begin[i], out);
    begin = end;
  }
  return out;
}

}  // namespace millrace::models
