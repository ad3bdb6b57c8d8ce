// Text inside HTML, SVG and other XML.
#pragma once

#include <string>
#include <string_view>

namespace millrace {

// With & < > and " as entities, so that it may stand between tags and in an
// attribute in double quotes. Other bytes stay as they are.
std::string EscapeHtml(std::string_view text);

}  // namespace millrace
