// y = W x without sdot, and the packing of both tables, which is that of AVX2.

#include "models/cpu/kernels/neon/linear.h"

#include "models/cpu/kernels/neon/parts.h"

namespace millrace::models::neon {

int64_t GroupBytes(WeightFormat format, int64_t k) {
  return Pack8::GroupBytes(format, k);
}

bool PackGroup(WeightFormat format, const void* const* rows, int32_t num_rows,
               int64_t k, void* group) {
  return Pack8::Pack(format, rows, num_rows, k, group);
}

void UnpackRow(const PackedMatrix& w, int64_t row, float* out) {
  Pack8::UnpackRow(w, row, out);
}

void Linear(const PackedMatrix& w, int64_t group_begin, int64_t group_end,
            const ActRows& act, int32_t num_rows, float* y, int64_t ld_y) {
  RunTiles({w, act, y, ld_y}, group_begin, group_end, num_rows);
}

}  // namespace millrace::models::neon
