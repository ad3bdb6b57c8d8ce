// The nodes of a program's JSON, in order. Bodies that run as a part of the
// program around them, such as what a model computes under torch.no_grad(),
// become nodes of that program:
//
//   (y,) = wrap_with_set_grad_enabled(False, body, x)
//     body(a): t = aten.relu(a); return t
//   →  wrap/t = aten.relu(x);  y = aten.alias(wrap/t)
//
// Bodies of branches and loops become programs of their own. The condition of a
// loop is computed before it, and again at the end of its body.
#pragma once

#include "config/base/status.h"
#include "models/graph/pt2/json_fields.h"
#include "models/graph/pt2/program.h"

namespace millrace::models::graph::pt2 {

// Adds the graph's nodes and the types of its tensors to the program.
// UNIMPLEMENTED: a body that computes otherwise than it is written.
Status ParseGraph(const Json& graph, const ImportLimits& limits,
                  Program& program);

}  // namespace millrace::models::graph::pt2
