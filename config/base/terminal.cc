#include "config/base/terminal.h"

#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace millrace {

bool ObeysEscapes(int file) {
  const char* kind = std::getenv("TERM");
  return ::isatty(file) != 0 && kind != nullptr && *kind != '\0' &&
         std::string_view(kind) != "dumb";
}

}  // namespace millrace
