// The functions that the AVX-512 VNNI table does not take from AVX2.
#pragma once

#include "models/cpu/llm_kernels.h"

namespace millrace::models::avx512vnni {

int64_t GroupBytes(WeightFormat format, int64_t k);
bool PackGroup(WeightFormat format, const void* const* rows, int32_t num_rows,
               int64_t k, void* group);
void Linear(const PackedMatrix& w, int64_t group_begin, int64_t group_end,
            const ActRows& act, int32_t num_rows, float* y, int64_t ld_y);
void UnpackRow(const PackedMatrix& w, int64_t row, float* out);
// Linear's parts for integer formats with blocks of 32 and of 256 columns.
void Linear32(const PackedMatrix& w, int64_t group_begin, int64_t group_end,
              const ActRows& act, int32_t num_rows, float* y, int64_t ld_y);
void Linear256(const PackedMatrix& w, int64_t group_begin, int64_t group_end,
               const ActRows& act, int32_t num_rows, float* y, int64_t ld_y);

void QuantizeRow(const float* x, int64_t k, const Q8Row& out);
void SiluMul(const float* gate, const float* up, int64_t n, float* out);

int64_t AttendScratchFloats(int32_t num_rows, int32_t head_dim);
void Attend(const AttendArgs& args);

}  // namespace millrace::models::avx512vnni
