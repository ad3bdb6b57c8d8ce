// In which format a GPU keeps each value between the operators of a graph.
//
// With the precisions f16 and bf16 a value stands in 16 bits where its maker
// can write it and its readers can read it so. A reader that takes f32 alone,
// and every one on the cores, gets a copy in f32, made once; the value stays
// f32 where that would move more bytes than it saves. In f32 stay
//
//   - inputs, results and constants of the graph,
//   - what an operator magnifies errors of (sin and its kind, rounding down) or
//     masks attention with, and what only programs and copies made it from,
//   - what a program made and a sum adds up: squares soon leave f16.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "models/cuda/graph_kernels.h"
#include "models/graph/ir.h"
#include "models/graph/plan/step.h"

namespace millrace::models::graph {

// Of 16 bits, or kF32: none.
cuda::GraphFormat NarrowFormatOf(cuda::GraphPrecision precision);
bool IsNarrow(cuda::GraphFormat format);
std::string FormatName(cuda::GraphFormat format);  // "f16"

struct KeptFormatsOf {
  const Graph& graph;                // typed and optimised
  const std::vector<Slot>& slot_of;  // storage of each value
  size_t num_slots;
  const std::vector<bool>& on_device;  // each node; aliases are not
  cuda::GraphPrecision precision;
};
// Of each storage: UINT8 as it is, else f32 or the format of the precision.
std::vector<cuda::GraphFormat> KeptFormats(const KeptFormatsOf& of);

}  // namespace millrace::models::graph
