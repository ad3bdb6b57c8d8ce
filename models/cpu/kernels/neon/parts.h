// The functions of the NEON table; llm_kernels.h says what each must do.
#pragma once

#include "models/cpu/llm_kernels.h"

namespace millrace::models::neon {

int64_t GroupBytes(WeightFormat format, int64_t k);
bool PackGroup(WeightFormat format, const void* const* rows, int32_t num_rows,
               int64_t k, void* group);
void Linear(const PackedMatrix& w, int64_t group_begin, int64_t group_end,
            const ActRows& act, int32_t num_rows, float* y, int64_t ld_y);
void UnpackRow(const PackedMatrix& w, int64_t row, float* out);

void QuantizeRow(const float* x, int64_t k, const Q8Row& out);
void RestOfRow(const float* x, int64_t k, const Q8Row& q, float* rest);
void RmsNorm(const float* x, const float* weight, int64_t n, float eps,
             float* out);
void Add(float* x, const float* y, int64_t n);
void SiluMul(const float* gate, const float* up, int64_t n, float* out);
void GeluMul(const float* gate, const float* up, int64_t n, float* out);
void SoftCap(float* x, float cap, int64_t n);
void Rope(float* head, int64_t head_dim, const float* cos, const float* sin,
          bool interleaved);
void Scale(const float* x, float scale, int64_t n, float* out);

int64_t AttendScratchFloats(int32_t num_rows, int32_t head_dim);
void Attend(const AttendArgs& args);
void Merge(const float* m, const float* l, const float* o, int64_t stride_ml,
           int64_t stride_o, int32_t num_splits, int32_t head_dim,
           const float* sink, float* out);
void WriteKv(const float* k, const float* v, int32_t head_dim,
             int32_t index_in_page, KvFormat format, void* k_page,
             void* v_page);

float Max(const float* x, int64_t n);
double SumExp(const float* x, int64_t n, float offset, float scale, float* out);

}  // namespace millrace::models::neon
