// The NEON table: every 64-bit Arm CPU.

#include "models/cpu/arm_kernels.h"
#include "models/cpu/kernels/neon/parts.h"

namespace millrace::models {

const KernelTable* NeonKernels() {
  static constexpr KernelTable kTable = {
      .name = "neon",
      .row_group = 8,
      .packing = "rows8",
      .group_bytes = neon::GroupBytes,
      .pack_group = neon::PackGroup,
      .linear = neon::Linear,
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
      .attend_scratch_floats = neon::AttendScratchFloats,
      .attend = neon::Attend,
      .merge = neon::Merge,
      .write_kv = neon::WriteKv,
      .max = neon::Max,
      .sum_exp = neon::SumExp,
  };
  return &kTable;
}

}  // namespace millrace::models
