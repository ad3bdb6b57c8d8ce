// Roofline of a team: peak rates of arithmetic and of memory, beside which the
// speed of a step is shown (Williams, Waterman, Patterson 2009).
#pragma once

#include <cstdint>

#include "config/base/status.h"
#include "models/cpu/compute_pool.h"
#include "models/graph/plan/kernels.h"
#include "models/graph/trace.h"

namespace millrace::models::graph {

// Of all members together.
struct TeamRoofline {
  // Products by the kernels in use, whose operands lie in the caches; 0: none.
  double macs_per_s = 0;             // of f32
  double bf16_macs_per_s = 0;        // of bf16
  double int8_macs_per_s = 0;        // of bytes
  double read_bytes_per_s = 0;       // memory, as much of it as the weights are
  double cache_bytes_per_s = 0;      // what stays in L2
  double cache_bytes = 0;            // the L2 of all members
  double weight_bytes = 0;           // what a run reads of constants
  const char* memory_name = "DRAM";  // or "L3", where the weights fit into it

  // The least time that a step's products need; 0 where no peak is known.
  double MacSeconds(const StepInfo& step) const;
  // The same of its bytes. Some of them may lie in L2, since the step before
  // has just written them: as many as fit are taken to. Weights do where those
  // of the whole graph fit.
  double ByteSeconds(const StepInfo& step) const;
  // What most of that time is spent on: "L2", or memory_name.
  const char* ByteCeiling(const StepInfo& step) const;
};

// The best of several runs of a few milliseconds each, since anything else on
// the machine can only lower a run. `weight_bytes` is what a run of the graph
// reads of constants.
StatusOr<TeamRoofline> MeasureRoofline(ComputePool& pool,
                                       const Kernels& kernels,
                                       int64_t weight_bytes);

}  // namespace millrace::models::graph
