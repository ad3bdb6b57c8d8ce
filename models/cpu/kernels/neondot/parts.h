// The functions that the neondot table does not take from neon.
#pragma once

#include "models/cpu/llm_kernels.h"

namespace millrace::models::neondot {

void Linear(const PackedMatrix& w, int64_t group_begin, int64_t group_end,
            const ActRows& act, int32_t num_rows, float* y, int64_t ld_y);
int64_t AttendScratchFloats(int32_t num_rows, int32_t head_dim);
void Attend(const AttendArgs& args);

}  // namespace millrace::models::neondot
