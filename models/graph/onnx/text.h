// Names and texts of a foreign file on their way into messages.
#pragma once

#include <string>
#include <string_view>

namespace millrace::models::graph {

// Valid UTF-8 without control characters, cut after 200 bytes.
std::string Cleaned(std::string_view text);
// 'text', cleaned.
std::string Quoted(std::string_view text);

}  // namespace millrace::models::graph
