// Base64 (RFC 4648, section 4), as JSON carries bytes.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace millrace {

// None where the text is no base64. Padding may be left out; white space is
// passed over.
std::optional<std::string> DecodeBase64(std::string_view text);

}  // namespace millrace
