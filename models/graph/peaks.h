// The yardsticks beside which the speed of a step is shown.
#pragma once

#include "config/base/status.h"
#include "models/cpu/compute_pool.h"
#include "models/cpu/dense.h"

namespace millrace::models::graph {

// Of all members together.
struct TeamPeaks {
  double macs_per_s = 0;        // f32 products whose operands lie in L1
  double read_bytes_per_s = 0;  // memory read once
};

// The best of several runs of a few milliseconds each, since anything else on
// the machine can only lower a run.
StatusOr<TeamPeaks> MeasurePeaks(ComputePool& pool, const DenseTable& dense);

}  // namespace millrace::models::graph
