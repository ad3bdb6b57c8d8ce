// y = W x on AMX: BF16 weights, and Q8_0, Q4_0 and Q4_1 for 16 tokens and more;
// the rest goes to AVX-512. See tiles.h.
//
// Written without a machine that has AMX: the tests run tiles.h over an
// emulation of the instructions, the assembly below has only been assembled. So
// the table is never chosen unasked.

#include "models/cpu/kernels/amx/cpu_tiles.h"
#include "models/cpu/kernels/amx/parts.h"
#include "models/cpu/kernels/amx/tiles.h"
#include "models/cpu/kernels/avx512vnni/parts.h"

namespace millrace::models::amx {
void Linear(const PackedMatrix& w, int64_t group_begin, int64_t group_end,
            const ActRows& act, int32_t num_rows, float* y, int64_t ld_y) {
  CpuTiles tiles;
  const int32_t done =
      RunTiles(tiles, w, group_begin, group_end, act, num_rows, y, ld_y);
  if (done == num_rows) return;
  avx512vnni::Linear(w, group_begin, group_end,
                     done == 0 ? act : RowsFrom(act, done), num_rows - done,
                     y + done * ld_y, ld_y);
}

}  // namespace millrace::models::amx
