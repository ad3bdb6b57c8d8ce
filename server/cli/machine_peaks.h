// What this machine can do at best with a team of threads, measured now: the
// two ceilings that a model's steps are told against.
#pragma once

#include "config/base/status.h"
#include "config/topology.h"
#include "models/cpu/kernels.h"

namespace millrace::server {

struct MachinePeaks {
  double read_bytes_per_s = 0;  // streaming from memory, 2 MiB pages
  double macs_per_s = 0;        // the table's own linear kernel, in cache
};

// Takes about a second; one thread of the team for each CPU. The formats are
// those of most weights.
StatusOr<MachinePeaks> MeasurePeaks(const config::CpuSet& team,
                                    const models::KernelTable& kernels,
                                    models::WeightFormat format);

}  // namespace millrace::server
