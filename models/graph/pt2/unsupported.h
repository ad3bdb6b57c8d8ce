// What the report says of a node that cannot be imported.
#pragma once

#include <string_view>

#include "config/base/status.h"
#include "models/graph/import.h"
#include "models/graph/pt2/lowering.h"

namespace millrace::models::graph::pt2 {

// Beyond 4096 rows nothing is added.
void AddUnsupported(const NodeSpec& node, Names& names, std::string_view why,
                    ImportReport* report);

// UNIMPLEMENTED, with a remedy where there is one.
Status NoSuchOperator(std::string_view target);

}  // namespace millrace::models::graph::pt2
