// Integer weights whose blocks in the file hold 256 columns: the K types and
// IQ4_XS.

#include "models/cpu/kernels/avx512vnni/parts.h"
#include "models/cpu/kernels/avx512vnni/tile.h"

namespace millrace::models::avx512vnni {

void Linear256(const PackedMatrix& w, int64_t group_begin, int64_t group_end,
               const ActRows& act, int32_t num_rows, float* y, int64_t ld_y) {
  const Work work{w, act, y, ld_y};
  switch (w.format) {
    case WeightFormat::kQ2_K:
      return Integer<WeightFormat::kQ2_K>(work, group_begin, group_end,
                                          num_rows);
    case WeightFormat::kQ3_K:
      return Integer<WeightFormat::kQ3_K>(work, group_begin, group_end,
                                          num_rows);
    case WeightFormat::kQ4_K:
      return Integer<WeightFormat::kQ4_K>(work, group_begin, group_end,
                                          num_rows);
    case WeightFormat::kQ5_K:
      return Integer<WeightFormat::kQ5_K>(work, group_begin, group_end,
                                          num_rows);
    case WeightFormat::kQ6_K:
      return Integer<WeightFormat::kQ6_K>(work, group_begin, group_end,
                                          num_rows);
    case WeightFormat::kIQ4_XS:
      return Integer<WeightFormat::kIQ4_XS>(work, group_begin, group_end,
                                            num_rows);
    default:
      return;
  }
}

}  // namespace millrace::models::avx512vnni
