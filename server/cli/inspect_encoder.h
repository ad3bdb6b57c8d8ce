// What `millrace inspect` tells of an encoder of texts: a folder or a GGUF.
#pragma once

#include <string>

#include "config/base/status.h"

namespace millrace::server {

// Prints it. FAILED_PRECONDITION: it cannot be served.
Status InspectEncoder(const std::string& path);

}  // namespace millrace::server
