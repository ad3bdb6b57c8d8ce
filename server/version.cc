// The one file that is recompiled when the version changes.
#include "server/version.h"

namespace millrace::server {

std::string_view Version() { return MILLRACE_VERSION; }

}  // namespace millrace::server
