// The functions that the AMX table does not take from AVX-512.
#pragma once

#include "models/cpu/llm_kernels.h"

namespace millrace::models::amx {

void Linear(const PackedMatrix& w, int64_t group_begin, int64_t group_end,
            const ActRows& act, int32_t num_rows, float* y, int64_t ld_y);

int64_t PromptLinearScratchBytes(const PackedMatrix& w, int32_t num_rows);
bool PromptLinear(const PackedMatrix& w, int64_t group_begin, int64_t group_end,
                  const ActRows& act, int32_t num_rows, float* y, int64_t ld_y,
                  void* scratch);

int64_t PromptAttendScratchFloats(int32_t num_rows, int32_t head_dim);
void PromptAttend(const AttendArgs& args);

}  // namespace millrace::models::amx
