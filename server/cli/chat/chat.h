// `millrace chat` over streams of the caller's, so that a test can hold both
// ends.
#pragma once

#include <functional>
#include <iosfwd>
#include <optional>
#include <string>

#include "server/cli/args.h"

namespace millrace::server {

struct ChatTerminal {
  std::istream& in;
  std::ostream& out;
  std::ostream& err;
  bool interactive = false;              // a person types: greet and prompt
  bool to_screen = false;                // answers must not drive the terminal
  bool styled = false;                   // colour, and Markdown shown as styles
  std::function<bool()> cancelled = {};  // Ctrl-C since the last answer began
  // Prompts and reads a line; nothing at the end. Empty: from `in`.
  std::function<std::optional<std::string>()> read_line = {};
};

int RunChatOn(Args args, ChatTerminal terminal);

}  // namespace millrace::server
