// The table of Arm CPUs with sdot: Neoverse N1, Apple M1, Cortex-A76 and later.
// Everything but products of integers is the NEON code.

#include "models/cpu/arm_kernels.h"
#include "models/cpu/kernels/neon/parts.h"
#include "models/cpu/kernels/neondot/parts.h"

namespace millrace::models {

const KernelTable* NeonDotKernels() {
  static constexpr KernelTable kTable = {
      .name = "neondot",
      .row_group = 8,
      .packing = "rows8",
      .group_bytes = neon::GroupBytes,
      .pack_group = neon::PackGroup,
      .linear = neondot::Linear,
      .unpack_row = neon::UnpackRow,
      .quantize_row = neon::QuantizeRow,
      .rest_of_row = neon::RestOfRow,
      .round_row = nullptr,
      .rms_norm = neon::RmsNorm,
      .add = neon::Add,
      .silu_mul = neon::SiluMul,
      .gelu_mul = neon::GeluMul,
      .soft_cap = neon::SoftCap,
      .rope = neon::Rope,
      .scale = neon::Scale,
      .attend_scratch_floats = neondot::AttendScratchFloats,
      .attend = neondot::Attend,
      .merge = neon::Merge,
      .write_kv = neon::WriteKv,
      .max = neon::Max,
      .sum_exp = neon::SumExp,
  };
  return &kTable;
}

}  // namespace millrace::models
