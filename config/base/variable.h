// Variables of the environment. An empty one is how a shell or a manifest says
// "not set" (`MILLRACE_HTTP_PORT: ${PORT:-}` of a compose file).
#pragma once

#include <cstdlib>
#include <string>

namespace millrace {

// Null where the variable is not set or empty. Lives until the environment
// changes, which nothing of ours does once threads run.
inline const char* Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? nullptr : value;
}

inline std::string VariableOr(const char* name, const char* otherwise) {
  const char* value = Variable(name);
  return value == nullptr ? otherwise : value;
}

}  // namespace millrace
