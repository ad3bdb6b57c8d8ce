// Metrics of NVIDIA GPUs, read from the driver's NVML at each scrape:
// millrace_gpu_* with the labels gpu (its number) and gpu_uuid, for every GPU
// of the machine, used by this server or not. --metrics-compat triton shows
// them as nv_gpu_* and nv_energy_consumption.
//
// Thread-safe.
#pragma once

#include <memory>

#include "config/base/metrics.h"

namespace millrace::server {

// Exports them for as long as the returned object lives; null where NVML
// cannot be opened or finds no GPU. The library is the file that MILLRACE_NVML
// names, else the driver's libnvidia-ml.so.1. What a GPU does not tell has no
// series.
[[nodiscard]] std::shared_ptr<void> ExportGpuMetrics(MetricRegistry& registry);

}  // namespace millrace::server
