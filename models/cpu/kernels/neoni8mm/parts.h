// The function that the neoni8mm table does not take from the others.
#pragma once

#include "models/cpu/llm_kernels.h"

namespace millrace::models::neoni8mm {

void Linear(const PackedMatrix& w, int64_t group_begin, int64_t group_end,
            const ActRows& act, int32_t num_rows, float* y, int64_t ld_y);

}  // namespace millrace::models::neoni8mm
