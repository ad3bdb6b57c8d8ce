// The AVX2 table (with FMA and F16C): Haswell, Zen and later.

#include "models/cpu/kernels/avx2/parts.h"

namespace millrace::models {

const KernelTable* Avx2Kernels() {
  static constexpr KernelTable kTable = {
      .name = "avx2",
      .row_group = 8,
      .packing = "rows8",
      .group_bytes = avx2::GroupBytes,
      .pack_group = avx2::PackGroup,
      .linear = avx2::Linear,
      .unpack_row = avx2::UnpackRow,
      .quantize_row = avx2::QuantizeRow,
      .rest_of_row = avx2::RestOfRow,
      .round_row = nullptr,
      .rms_norm = avx2::RmsNorm,
      .add = avx2::Add,
      .silu_mul = avx2::SiluMul,
      .gelu_mul = avx2::GeluMul,
      .soft_cap = avx2::SoftCap,
      .rope = avx2::Rope,
      .scale = avx2::Scale,
      .attend_scratch_floats = avx2::AttendScratchFloats,
      .attend = avx2::Attend,
      .merge = avx2::Merge,
      .write_kv = avx2::WriteKv,
      .max = avx2::Max,
      .sum_exp = avx2::SumExp,
  };
  return &kTable;
}

}  // namespace millrace::models
