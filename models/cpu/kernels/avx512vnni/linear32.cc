// Integer weights whose blocks in the file hold 32 columns.

#include "models/cpu/kernels/avx512vnni/parts.h"
#include "models/cpu/kernels/avx512vnni/tile.h"

namespace millrace::models::avx512vnni {

void Linear32(const PackedMatrix& w, int64_t group_begin, int64_t group_end,
              const ActRows& act, int32_t num_rows, float* y, int64_t ld_y) {
  const Work work{w, act, y, ld_y};
  switch (w.format) {
    case WeightFormat::kQ8_0:
      return Integer<WeightFormat::kQ8_0>(work, group_begin, group_end,
                                          num_rows);
    case WeightFormat::kQ4_0:
      return Integer<WeightFormat::kQ4_0>(work, group_begin, group_end,
                                          num_rows);
    case WeightFormat::kQ4_1:
      return Integer<WeightFormat::kQ4_1>(work, group_begin, group_end,
                                          num_rows);
    case WeightFormat::kQ5_0:
      return Integer<WeightFormat::kQ5_0>(work, group_begin, group_end,
                                          num_rows);
    case WeightFormat::kQ5_1:
      return Integer<WeightFormat::kQ5_1>(work, group_begin, group_end,
                                          num_rows);
    case WeightFormat::kIQ4_NL:
      return Integer<WeightFormat::kIQ4_NL>(work, group_begin, group_end,
                                            num_rows);
    case WeightFormat::kMXFP4:
      return Integer<WeightFormat::kMXFP4>(work, group_begin, group_end,
                                           num_rows);
    default:
      return;
  }
}

}  // namespace millrace::models::avx512vnni
