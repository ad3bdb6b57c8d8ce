// The part of `millrace inspect` that knows graphs.
#pragma once

#include <string>

#include "config/base/status.h"

namespace millrace::server {

// Prints what a graph takes, gives and consists of, or every node that cannot
// be run.
Status InspectGraph(const std::string& path);

}  // namespace millrace::server
