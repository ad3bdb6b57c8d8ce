// The AVX-VNNI table: Alder Lake, Sierra Forest and later, which have VNNI but
// no AVX-512. Everything but integer matrices is the AVX2 code.

#include "models/cpu/kernels/avx2/parts.h"
#include "models/cpu/kernels/avxvnni/parts.h"

namespace millrace::models {

const KernelTable* AvxVnniKernels() {
  static constexpr KernelTable kTable = {
      .name = "avxvnni",
      .row_group = 8,
      .packing = "rows8",
      .group_bytes = avx2::GroupBytes,
      .pack_group = avx2::PackGroup,
      .linear = avxvnni::Linear,
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
