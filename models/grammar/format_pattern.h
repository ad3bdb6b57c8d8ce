// Formats of JSON Schema as regular expressions, where the library's own take
// more than the format does: 31 February, a host name of 300 characters, a
// pointer with a quote inside.
//
//   FormatPattern("date")   // ^(?:(?:[0-9]{3}[1-9]|…)-…)$
//
// What no regular expression says shortly is narrowed, so that every string
// that is written has the format. Pure.
#pragma once

#include <string>
#include <string_view>

namespace millrace::models {

// For the whole string, without characters that JSON escapes; empty: the
// library's own is used.
std::string FormatPattern(std::string_view format);

}  // namespace millrace::models
