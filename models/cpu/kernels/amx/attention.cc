// Attention of the rows of a prompt on AMX. See attention.h.

#include "models/cpu/kernels/amx/attention.h"

#include "models/cpu/kernels/amx/cpu_tiles.h"
#include "models/cpu/kernels/amx/parts.h"

namespace millrace::models::amx {

int64_t PromptAttendScratchFloats(int32_t num_rows, int32_t head_dim) {
  return PromptAttention<CpuTiles>::ScratchFloats(num_rows, head_dim);
}

void PromptAttend(const AttendArgs& args) {
  CpuTiles tiles;
  PromptAttention<CpuTiles>::Attend(tiles, args);
}

}  // namespace millrace::models::amx
