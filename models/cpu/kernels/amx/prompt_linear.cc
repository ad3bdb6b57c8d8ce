// y = W x for rows of prompts on AMX: see prompt_linear.h.

#include "models/cpu/kernels/amx/prompt_linear.h"

#include "models/cpu/kernels/amx/cpu_tiles.h"
#include "models/cpu/kernels/amx/parts.h"

namespace millrace::models::amx {

int64_t PromptLinearScratchBytes(const PackedMatrix& w, int32_t num_rows) {
  return PromptScratchBytes(w, num_rows);
}

bool PromptLinear(const PackedMatrix& w, int64_t group_begin, int64_t group_end,
                  const ActRows& act, int32_t num_rows, float* y, int64_t ld_y,
                  void* scratch) {
  CpuTiles tiles;
  return RunPromptLinear(tiles, w, group_begin, group_end, act, num_rows, y,
                         ld_y, scratch);
}

}  // namespace millrace::models::amx
