// y = W x on AMX: BF16 weights, and integer weights for 32 tokens and more; the
// rest goes to AVX-512. See tile_linear.h.

#include "models/cpu/kernels/amx/cpu_tiles.h"
#include "models/cpu/kernels/amx/parts.h"
#include "models/cpu/kernels/amx/tile_linear.h"
#include "models/cpu/kernels/avx512vnni/parts.h"

namespace millrace::models::amx {

void Linear(const PackedMatrix& w, int64_t group_begin, int64_t group_end,
            const ActRows& act, int32_t num_rows, float* y, int64_t ld_y) {
  CpuTiles tiles;
  const int32_t done =
      RunTileLinear(tiles, w, group_begin, group_end, act, num_rows, y, ld_y);
  if (done == num_rows) return;
  avx512vnni::Linear(w, group_begin, group_end,
                     done == 0 ? act : Q8RowsFrom(act, done), num_rows - done,
                     y + done * ld_y, ld_y);
}

}  // namespace millrace::models::amx
