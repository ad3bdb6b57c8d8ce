// Which values are kept in bf16 between two steps.
//
// A value that nothing but products of bf16 read, each as a factor, is rounded
// on its way into all of them. So the step that makes it may round it already:
// half as many bytes move, and the readers take it as it lies.
//
//   LayerNorm ── bf16 ── Linear +gelu ── bf16 ── Linear +residual ── f32 ──
//
// Queries of attention are rounded, too: where products round, their scores are
// scaled, so that no bit changes.
//
// A convolution that rounds its factors takes the residual that it adds in
// bf16, too, and a depthwise one what it multiplies in f32, if all other
// readers take bf16. Beside these, nothing changes bits of results. (Residuals
// of linear layers stay in f32: in BERT they took the error from 0.004 to 0.02
// of the largest result and no time.) Gates and whatever else reads a value in
// f32 keep it in f32.
#pragma once

#include "models/graph/ir.h"

namespace millrace::models::graph {

// The graph is optimised: every value has a type, which becomes BF16 here. For
// a machine with products of bf16.
void KeepBf16(Graph& graph);
// The same bits with every value in f32: each is rounded by nodes of their own.
// For tests.
void RoundAsKept(Graph& graph);

}  // namespace millrace::models::graph
