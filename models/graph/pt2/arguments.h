// The parts of a program's JSON that have types: tensors' descriptions and
// nodes' arguments.
#pragma once

#include "config/base/status.h"
#include "models/graph/pt2/json_fields.h"
#include "models/graph/pt2/program.h"

namespace millrace::models::graph::pt2 {

StatusOr<TensorMeta> ParseMeta(const Json& json);
StatusOr<Argument> ParseArgument(const Json& json);

}  // namespace millrace::models::graph::pt2
