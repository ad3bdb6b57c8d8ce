// What a batcher says of requests that it does not compute, and of what a
// graph's ports take.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/base/clock.h"
#include "config/base/status.h"
#include "models/graph/ports.h"
#include "models/tensor/tensor_spec.h"
#include "scheduler/batch_former.h"
#include "scheduler/batch_job.h"

namespace millrace::scheduler {

// Left the queue after so long a time.
Status DropStatus(BatchDrop why, Clock::Duration waited,
                  const std::string& model);
// It would be answered in `wait`, but has so much time left.
Status DeadlineTooNear(Clock::Duration left, Clock::Duration wait,
                       const std::string& model);
// CANCELLED or DEADLINE_EXCEEDED where its client left or its time is over.
Status WhyUnwanted(const BatchJob& job, Clock::Time now,
                   const std::string& model);
Status TooManyRows(int32_t rows, int32_t max_batch_size,
                   const std::string& model);

std::vector<models::TensorSpec> SpecsOf(
    const std::vector<models::graph::Port>& ports,
    const std::vector<models::graph::Symbol>& symbols);
std::vector<std::string> NamesOf(const std::vector<models::graph::Port>& ports);

}  // namespace millrace::scheduler
