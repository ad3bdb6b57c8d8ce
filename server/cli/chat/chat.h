// `millrace chat` over streams of the caller's, so that a test can hold both
// ends.
#pragma once

#include <functional>
#include <iosfwd>

#include "server/cli/verbs.h"

namespace millrace::server {

struct ChatTerminal {
  std::istream& in;
  std::ostream& out;
  std::ostream& err;
  bool interactive;                 // a person types: greet and prompt
  bool to_screen;                   // answers must not drive the terminal
  std::function<bool()> cancelled;  // Ctrl-C since the last answer began
};

int RunChatOn(Args args, ChatTerminal terminal);

}  // namespace millrace::server
