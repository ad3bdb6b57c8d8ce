// A ModelProto in memory to a graph.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "config/base/status.h"
#include "models/graph/import.h"

namespace millrace::models::graph {

// `folder` is where external data stand; empty: there are none.
StatusOr<Graph> ImportOnnxBytes(std::span<const std::byte> bytes,
                                std::string folder, ImportReport* report,
                                const ImportLimits& limits);

}  // namespace millrace::models::graph
