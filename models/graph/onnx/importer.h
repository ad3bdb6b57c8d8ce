// A ModelProto in memory to a graph.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "config/base/status.h"
#include "models/graph/import.h"
#include "models/memory/mapped_file.h"

namespace millrace::models::graph {

// `folder` is where external data stand; empty: there are none. Large weights
// stay where `bytes` are if `file` holds these, which may be null.
StatusOr<Graph> ImportOnnxBytes(std::span<const std::byte> bytes,
                                std::string folder, ImportReport* report,
                                const ImportLimits& limits,
                                std::shared_ptr<const MappedFile> file = {});

}  // namespace millrace::models::graph
