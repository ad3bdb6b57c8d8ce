// Text of a foreign file or server, for a terminal: without the control
// characters that a terminal obeys. Those are the ones of ASCII and U+0080 to
// U+009F.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace millrace::server {

inline constexpr size_t kShownBytes = 72;

// Valid UTF-8 with a space for each control character; cut when long.
std::string Clean(std::string_view bytes, size_t most = kShownBytes,
                  bool keep_lines = false);

// The text without its control characters, but for line breaks and tabs. Bytes
// that are no UTF-8 stay, as a piece of a stream may end within a character.
std::string Printable(std::string_view text);

}  // namespace millrace::server
