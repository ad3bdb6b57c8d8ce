// The scalar table: runs anywhere, serves every format, and says in plain code
// what the vector tables must give bit for bit.

#include "models/cpu/kernels/scalar/parts.h"

namespace millrace::models {

const KernelTable* ScalarKernels() {
  static constexpr KernelTable kTable = {
      .name = "scalar",
      .row_group = 8,
      .packing = "plain",
      .group_bytes = scalar::GroupBytes,
      .pack_group = scalar::PackGroup,
      .linear = scalar::Linear,
      .unpack_row = scalar::UnpackRow,
      .quantize_row = scalar::QuantizeRow,
      .rest_of_row = scalar::RestOfRow,
      .round_row = nullptr,
      .rms_norm = scalar::RmsNorm,
      .add = scalar::Add,
      .silu_mul = scalar::SiluMul,
      .gelu_mul = scalar::GeluMul,
      .soft_cap = scalar::SoftCap,
      .rope = scalar::Rope,
      .scale = scalar::Scale,
      .attend_scratch_floats = scalar::AttendScratchFloats,
      .attend = scalar::Attend,
      .merge = scalar::Merge,
      .write_kv = scalar::WriteKv,
      .max = scalar::Max,
      .sum_exp = scalar::SumExp,
  };
  return &kTable;
}

}  // namespace millrace::models
