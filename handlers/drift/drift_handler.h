// A classifier's handler that tells a drift monitor of each prediction: the
// best class of each row of the graph's first output, after `activation` as of
// task classify.
#pragma once

#include <memory>
#include <string>

#include "handlers/drift/drift_monitor.h"
#include "handlers/handler.h"

namespace millrace::handlers {

// Thread-safe. Requests that leave the first output out tell nothing, nor do
// scores that are no numbers.
std::unique_ptr<TensorHandler> MakeDriftHandler(
    std::unique_ptr<TensorHandler> inner, std::shared_ptr<DriftMonitor> monitor,
    std::string activation);

}  // namespace millrace::handlers
