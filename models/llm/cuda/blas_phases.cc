// Products of rows of prompts by weights in F16 or BF16 that cuBLASLt computes.
#include <algorithm>
#include <vector>

#include "config/base/log.h"
#include "models/llm/cuda/cuda_backend.h"
#include "models/llm/cuda/cuda_linear.h"
#include "models/llm/cuda/pack_rows.h"

namespace millrace::models {

int64_t CudaBlasBytes(const BackendShape& shape, const StepLimits& limits) {
  const int64_t widest = std::max<int64_t>(
      {shape.hidden, shape.ffn, int64_t{shape.heads} * shape.head_dim});
  return BlasProducts::Bytes(limits.max_tokens, widest) +
         BlasProducts::kTileRows *
             cuda::RoundedBytes(cuda::InputFormat::kF16, CudaInputs(widest));
}

void CudaBackend::NotePrompts(const Linear& linear) {
  if (keeping_ || blas_ == nullptr) return;
  of_prompts_.push_back(static_cast<const CudaLinear*>(&linear));
}

int64_t CudaBackend::BlasRows() const {
  return blas_ == nullptr ? 0 : BlasProducts::kTileRows;
}

Status CudaBackend::BindBlas() {
  if (blas_ == nullptr) return OkStatus();
  struct Matrix {
    const CudaLinear::Part* part;
    BlasShape shape;
  };
  std::vector<Matrix> matrices;
  int64_t most_outputs = 0;
  for (const CudaLinear* linear : of_prompts_) {
    const int64_t inputs = CudaInputs(linear->inputs());
    for (const CudaLinear::Part& part : linear->parts) {
      const cuda::InputFormat input = InputOf(*linear, part.format, true);
      if ((part.format != cuda::WeightFormat::kF16 &&
           part.format != cuda::WeightFormat::kBF16) ||
          input == cuda::InputFormat::kF32) {
        continue;
      }
      most_outputs = std::max(most_outputs, part.source.num_rows);
      matrices.push_back({&part,
                          {.factors = part.format == cuda::WeightFormat::kBF16
                                          ? BlasFactors::kBf16
                                          : BlasFactors::kF16,
                           .outputs = part.source.num_rows,
                           .inputs = inputs,
                           .weights_pitch = part.row_bytes / 2,
                           .x_pitch = cuda::RoundedBytes(input, inputs) / 2}});
    }
  }
  if (!matrices.empty()) {
    RETURN_IF_ERROR(blas_->Bind(limits_.max_tokens, most_outputs));
  }
  int64_t taken = 0;
  for (const Matrix& matrix : matrices) {
    ASSIGN_OR_RETURN(
        matrix.part->blas,
        blas_->Choose(matrix.shape, weights_.data() + matrix.part->at,
                      rounded_.data()));
    if (matrix.part->blas != nullptr) ++taken;
  }
  LogInfo(taken > 0
              ? "cuBLASLt multiplies prompts by weights in F16 and BF16"
              : "native kernels multiply prompts by all weights, cuBLASLt "
                "by none",
          {{"version", blas_->VersionText()},
           {"matrices", taken},
           {"refused", static_cast<int64_t>(matrices.size()) - taken}});
  return OkStatus();
}

Status CudaBackend::WhyNotLaunched(int error) const {
  if (error != 0 && blas_ != nullptr) RETURN_IF_ERROR(blas_->TakeFailure());
  return context_->Launched(error);
}

}  // namespace millrace::models
