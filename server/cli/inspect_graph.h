// The part of `millrace inspect` that knows graphs.
#pragma once

#include "config/base/status.h"
#include "server/cli/args.h"

namespace millrace::server {

// Prints what a graph takes, gives and consists of, every node that cannot be
// run, and whether the graph can be served. FAILED_PRECONDITION when it cannot:
// the reason is printed already. With --graph-backend it also runs the graph
// once, on made-up inputs, and prints whose kernels compute each layer; with a
// --device other than cpu it opens the device, runs the graph there and prints
// where each operator ran.
Status InspectGraph(const ParsedArgs& args);

}  // namespace millrace::server
