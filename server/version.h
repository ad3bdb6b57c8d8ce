// The version of this build, as in "0.1.0".
#pragma once

#include <string_view>

namespace millrace::server {

std::string_view Version();

}  // namespace millrace::server
