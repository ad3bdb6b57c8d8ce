// The AMX kernels of llm_kernels.h over emulated tiles. Compiled for AVX-512,
// so nothing here comes from a header whose functions a linker may share with
// the rest of the program.

#include "models/cpu/kernels/amx/prompt_linear.h"
#include "models/cpu/kernels/amx/tile_linear.h"
#include "tests/backend/kernels/emulated_tiles.h"

namespace millrace::models {

// Declared in amx_emulated.h, whose other contents must not be compiled here.
bool EmulatedAmxLinear(const KernelTable& rest, const PackedMatrix& w,
                       int64_t group_begin, int64_t group_end,
                       const ActRows& act, int32_t num_rows, float* y,
                       int64_t ld_y) {
  EmulatedTiles tiles;
  const int32_t done =
      RunTileLinear(tiles, w, group_begin, group_end, act, num_rows, y, ld_y);
  if (done < num_rows) {
    rest.linear(w, group_begin, group_end,
                done == 0 ? act : Q8RowsFrom(act, done), num_rows - done,
                y + done * ld_y, ld_y);
  }
  return !tiles.fault && !tiles.configured;
}

int64_t EmulatedAmxPromptScratchBytes(const PackedMatrix& w, int32_t num_rows) {
  return PromptScratchBytes(w, num_rows);
}

bool EmulatedAmxPromptLinear(const PackedMatrix& w, int64_t group_begin,
                             int64_t group_end, const ActRows& act,
                             int32_t num_rows, float* y, int64_t ld_y,
                             void* scratch, bool* known) {
  EmulatedTiles tiles;
  *known = RunPromptLinear(tiles, w, group_begin, group_end, act, num_rows, y,
                           ld_y, scratch);
  return !tiles.fault && !tiles.configured;
}

}  // namespace millrace::models
