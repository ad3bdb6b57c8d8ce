// Which values are kept in bf16 between two steps.
//
// A value that nothing but products of bf16 read, each as a factor, is rounded
// on its way into all of them. So the step that makes it may round it already:
// no bit of a result changes, half as many bytes move, and the readers take it
// as it lies.
//
//   LayerNorm ── bf16 ── Linear +gelu ── bf16 ── Linear +residual ── f32 ──
//
// Residuals, gates and whatever else reads a value in f32 keep it in f32.
#pragma once

#include "models/graph/ir.h"

namespace millrace::models::graph {

// The graph is optimised: every value has a type, which becomes BF16 here. For
// a machine with products of bf16.
void KeepBf16(Graph& graph);

}  // namespace millrace::models::graph
