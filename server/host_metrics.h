// Metrics of the process and of the machine, read from /proc at each scrape:
// the standard process_* names, and millrace_host_* for memory, cores and disk.
//
// Thread-safe.
#pragma once

#include <memory>

#include "config/base/metrics.h"

namespace millrace::server {

// Exports them for as long as the returned object lives. What cannot be read
// stays at zero.
[[nodiscard]] std::shared_ptr<void> ExportHostMetrics(MetricRegistry& registry);

}  // namespace millrace::server
