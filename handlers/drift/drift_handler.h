// A classifier's handler that gives each prediction to a drift monitor: the
// best class of each row of the graph's output of that name, after `activation`
// as of task classify.
#pragma once

#include <memory>
#include <string>

#include "handlers/drift/drift_monitor.h"
#include "handlers/handler.h"

namespace millrace::handlers {

// Thread-safe. Requests that leave the output out are not counted, nor are
// scores that are not numbers.
std::unique_ptr<TensorHandler> MakeDriftHandler(
    std::unique_ptr<TensorHandler> inner, std::shared_ptr<DriftMonitor> monitor,
    std::string activation, std::string output);

}  // namespace millrace::handlers
