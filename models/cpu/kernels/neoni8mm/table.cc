// The table of Arm CPUs with smmla: Neoverse V1 and N2, Apple M2, Cortex-A710
// and later. Everything but products of integer weights is the code of neondot
// and neon.

#include "models/cpu/arm_kernels.h"
#include "models/cpu/kernels/neon/parts.h"
#include "models/cpu/kernels/neondot/parts.h"
#include "models/cpu/kernels/neoni8mm/parts.h"

namespace millrace::models {

const KernelTable* NeonI8mmKernels() {
  static constexpr KernelTable kTable = {
      .name = "neoni8mm",
      .row_group = 8,
      .packing = "rows8",
      .group_bytes = neon::GroupBytes,
      .pack_group = neon::PackGroup,
      .linear = neoni8mm::Linear,
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
