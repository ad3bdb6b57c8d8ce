// Lines of a chat that are commands: /help, /clear, /system, /model, /save,
// /exit.
#pragma once

#include <string>
#include <string_view>

#include "config/base/status.h"
#include "server/cli/chat/conversation.h"

namespace millrace::server {

// A slash and a word of letters, alone or before a space; a path such as
// /etc/hosts is no command.
bool IsCommand(std::string_view line);

struct CommandOutcome {
  Status status = {};
  std::string text = {};  // to print, with its line breaks
  bool leave = false;
};
// INVALID_ARGUMENT for a command that there is not.
CommandOutcome RunCommand(std::string_view line, Conversation& talk);

}  // namespace millrace::server
