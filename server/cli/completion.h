// Completions of a shell, generated from the verbs and the settings.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "config/base/status.h"
#include "server/cli/verb_table.h"

namespace millrace::server {

// The script for "bash", "zsh" or "fish"; INVALID_ARGUMENT for another shell.
StatusOr<std::string> CompletionScript(std::string_view shell,
                                       std::span<const Verb> verbs);

}  // namespace millrace::server
