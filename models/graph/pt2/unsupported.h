// What the report says of a node that cannot be imported.
#pragma once

#include <string_view>

#include "models/graph/import.h"
#include "models/graph/pt2/lowering.h"

namespace millrace::models::graph::pt2 {

// Beyond 4096 rows nothing is added.
void AddUnsupported(const NodeSpec& node, Names& names, std::string_view why,
                    ImportReport* report);

}  // namespace millrace::models::graph::pt2
