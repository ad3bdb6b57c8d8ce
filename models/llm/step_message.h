// A step as bytes, for the ranks of a group: only what the step uses of the
// batch's capacities, as int32 numbers of this machine's order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "config/base/status.h"
#include "models/llm/step.h"

namespace millrace::models {

// Appends to `out`.
void WriteStep(const StepBatch& batch, std::vector<int32_t>& out);

// All that WriteStep wrote, into a batch of the same limits. INVALID_ARGUMENT
// for numbers that the batch has no room for, or that are too few or too many;
// the batch is then worthless.
Status ReadStep(std::span<const int32_t> numbers, StepBatch& batch);

}  // namespace millrace::models
