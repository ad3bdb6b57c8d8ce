// y = W x with sdot.

#include "models/cpu/kernels/neon/linear.h"

#include "models/cpu/kernels/neondot/parts.h"

namespace millrace::models::neondot {

void Linear(const PackedMatrix& w, int64_t group_begin, int64_t group_end,
            const ActRows& act, int32_t num_rows, float* y, int64_t ld_y) {
  RunTiles({w, act, y, ld_y}, group_begin, group_end, num_rows);
}

}  // namespace millrace::models::neondot
