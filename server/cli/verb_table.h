// The verbs in the order of `millrace --help`.
#pragma once

#include <span>
#include <string_view>

#include "server/cli/args.h"

namespace millrace::server {

struct Verb {
  std::string_view name;
  std::string_view help;
  int (*run)(Args);
  // Null for serve, whose flags are the settings.
  const VerbSpec& (*spec)();
};

std::span<const Verb> Verbs();

}  // namespace millrace::server
