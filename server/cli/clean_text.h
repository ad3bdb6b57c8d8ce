// Text of a foreign file, for a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace millrace::server {

inline constexpr size_t kShownBytes = 72;

// Valid UTF-8 without control characters; cut when long.
std::string Clean(std::string_view bytes, size_t most = kShownBytes,
                  bool keep_lines = false);

}  // namespace millrace::server
