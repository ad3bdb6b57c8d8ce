// The AMX table: Sapphire Rapids and later. Packing and all that is not a
// matrix are those of the AVX-512 BF16 table.

#include "models/cpu/kernels/amx/parts.h"
#include "models/cpu/kernels/avx2/parts.h"
#include "models/cpu/kernels/avx512bf16/parts.h"
#include "models/cpu/kernels/avx512vnni/parts.h"

namespace millrace::models {

const KernelTable* AmxKernels() {
  static constexpr KernelTable kTable = {
      .name = "amx",
      .row_group = 16,
      .packing = "rows16",
      .group_bytes = avx512bf16::GroupBytes,
      .pack_group = avx512bf16::PackGroup,
      .linear = amx::Linear,
      .unpack_row = avx512bf16::UnpackRow,
      .quantize_row = avx512vnni::QuantizeRow,
      .rest_of_row = avx2::RestOfRow,
      .round_row = avx512bf16::RoundRow,
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
      .prompt_linear_scratch_bytes = amx::PromptLinearScratchBytes,
      .prompt_linear = amx::PromptLinear,
      .prompt_attend_scratch_floats = amx::PromptAttendScratchFloats,
      .prompt_attend = amx::PromptAttend,
      .max = avx2::Max,
      .sum_exp = avx2::SumExp,
  };
  return &kTable;
}

}  // namespace millrace::models
