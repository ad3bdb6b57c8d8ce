// y = W x with smmla.

#include "models/cpu/kernels/neon/linear.h"

#include "models/cpu/kernels/neoni8mm/parts.h"

namespace millrace::models::neoni8mm {

void Linear(const PackedMatrix& w, int64_t group_begin, int64_t group_end,
            const ActRows& act, int32_t num_rows, float* y, int64_t ld_y) {
  RunTiles({w, act, y, ld_y}, group_begin, group_end, num_rows);
}

}  // namespace millrace::models::neoni8mm
