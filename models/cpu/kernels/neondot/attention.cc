// Attention with sdot.

#include "models/cpu/kernels/neon/attend8.h"
#include "models/cpu/kernels/neondot/parts.h"

namespace millrace::models::neondot {

int64_t AttendScratchFloats(int32_t num_rows, int32_t head_dim) {
  return AttendTiles<NeonAttend>::ScratchFloats(num_rows, head_dim);
}

void Attend(const AttendArgs& args) { AttendTiles<NeonAttend>::Attend(args); }

}  // namespace millrace::models::neondot
