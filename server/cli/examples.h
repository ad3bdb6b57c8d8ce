// Two examples of each subcommand, which its --help ends with.
#pragma once

#include <string>
#include <string_view>

namespace millrace::server {

// "\nexamples:\n  millrace …\n"; empty for a verb without any.
std::string ExamplesText(std::string_view verb);

}  // namespace millrace::server
