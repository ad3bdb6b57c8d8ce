// The part of `millrace inspect` that knows graphs.
#pragma once

#include <string>

#include "config/base/status.h"

namespace millrace::server {

// Prints what a graph takes, gives and consists of, every node that cannot be
// run, and whether the graph can be served. FAILED_PRECONDITION when it cannot:
// the reason is printed already.
Status InspectGraph(const std::string& path);

}  // namespace millrace::server
