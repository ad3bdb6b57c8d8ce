// The AVX-512 VNNI table: Ice Lake, Zen 4 and later. Matrices and attention use
// 16 lanes; most of what happens to single rows is the AVX2 code, whose 8-lane
// trees are the documented order and which is small beside the matrices.

#include "models/cpu/kernels/avx2/parts.h"
#include "models/cpu/kernels/avx512vnni/parts.h"

namespace millrace::models {

const KernelTable* Avx512VnniKernels() {
  static constexpr KernelTable kTable = {
      .name = "avx512vnni",
      .row_group = 16,
      .packing = "rows16",
      .group_bytes = avx512vnni::GroupBytes,
      .pack_group = avx512vnni::PackGroup,
      .linear = avx512vnni::Linear,
      .unpack_row = avx512vnni::UnpackRow,
      .quantize_row = avx512vnni::QuantizeRow,
      .rest_of_row = avx2::RestOfRow,
      .round_row = nullptr,
      .rms_norm = avx2::RmsNorm,
      .add = avx2::Add,
      .silu_mul = avx512vnni::SiluMul,
      .gelu_mul = avx2::GeluMul,
      .soft_cap = avx2::SoftCap,
      .rope = avx2::Rope,
      .scale = avx2::Scale,
      .attend_scratch_floats = avx512vnni::AttendScratchFloats,
      .attend = avx512vnni::Attend,
      .merge = avx2::Merge,
      .write_kv = avx2::WriteKv,
      .max = avx2::Max,
      .sum_exp = avx2::SumExp,
  };
  return &kTable;
}

}  // namespace millrace::models
