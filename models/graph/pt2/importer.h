// The program of an archive, node by node, into a graph.
#pragma once

#include <span>

#include "config/base/status.h"
#include "models/graph/import.h"
#include "models/graph/ir.h"
#include "models/graph/pt2/archive.h"

namespace millrace::models::graph::pt2 {

StatusOr<Graph> ImportArchive(Pt2Archive& archive, ImportReport* report,
                              const ImportLimits& limits);

// The same from bytes in memory, which are copied where needed: for tests and
// fuzzers.
StatusOr<Graph> ImportPt2Bytes(std::span<const std::byte> bytes,
                               ImportReport* report,
                               const ImportLimits& limits);

}  // namespace millrace::models::graph::pt2
