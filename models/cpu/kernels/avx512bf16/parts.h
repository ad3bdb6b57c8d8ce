// The functions that the AVX-512 BF16 table does not take from AVX-512 VNNI.
#pragma once

#include "models/cpu/llm_kernels.h"

namespace millrace::models::avx512bf16 {

int64_t GroupBytes(WeightFormat format, int64_t k);
bool PackGroup(WeightFormat format, const void* const* rows, int32_t num_rows,
               int64_t k, void* group);
void Linear(const PackedMatrix& w, int64_t group_begin, int64_t group_end,
            const ActRows& act, int32_t num_rows, float* y, int64_t ld_y);
void UnpackRow(const PackedMatrix& w, int64_t row, float* out);
void RoundRow(const float* x, int64_t k, uint16_t* out);

}  // namespace millrace::models::avx512bf16
