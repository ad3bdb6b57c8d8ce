// What `millrace inspect` tells of a LoRA adapter.
#pragma once

#include <string>

#include "config/base/status.h"

namespace millrace::server {

// Prints it. `base`: a model, and whether the adapter fits it; or empty.
// FAILED_PRECONDITION: it cannot be served.
Status InspectLora(const std::string& path, const std::string& base);

}  // namespace millrace::server
