// What a step reads and multiplies, and what the GPU could do at most.
#include <algorithm>
#include <chrono>

#include "models/llm/cuda/cuda_backend.h"
#include "models/llm/cuda/cuda_linear.h"

namespace millrace::models {
namespace {

constexpr int32_t kBlocksOfMultiprocessor = 8;
constexpr int32_t kMostRepeats = 4000;
constexpr double kLongEnough = 2e-3;
constexpr int kRuns = 3;  // of which the fastest counts; the first loads code

}  // namespace

StepAccount CudaBackend::Account(const StepBatch& batch) const {
  StepAccount account;
  account.seconds = step_seconds_;
  for (const auto& linear : linears_) {
    if (linear->rows == CudaLinear::Rows::kNone) continue;
    for (const CudaLinear::Part& part : linear->parts) {
      const auto outputs = static_cast<double>(part.source.num_rows);
      account.weight_bytes += static_cast<double>(part.row_bytes) * outputs;
      const bool kept = linear->rows == CudaLinear::Rows::kKept;
      const double macs = outputs * static_cast<double>(linear->inputs());
      account.macs += macs * (kept ? batch.num_samples : batch.num_tokens);
      if (kept || InputOf(*linear, part.format, true) ==
                      InputOf(*linear, part.format, false)) {
        continue;
      }
      account.prompt_macs += macs * launched_[ended_].num_prompt_rows;
    }
  }
  AccountExperts(batch, account);
  const auto page_bytes =
      static_cast<double>(CudaPageBytes(shape(), kv_format_));
  for (int32_t seq = 0; seq < batch.num_seqs; ++seq) {
    account.kv_bytes +=
        page_bytes / kPageTokens * batch.kv_len()[static_cast<size_t>(seq)];
  }
  return account;
}

// Rows of each role read the experts that they use; how many these were, the
// device counted.
void CudaBackend::AccountExperts(const StepBatch& batch,
                                 StepAccount& account) const {
  for (const auto& experts : experts_) {
    const bool has_roles = !experts->kept && HasRoles(*experts);
    const int32_t rows = experts->kept ? batch.num_samples : batch.num_tokens;
    const int32_t prompts = has_roles ? launched_[ended_].num_prompt_rows : 0;
    for (const bool prompt : {false, true}) {
      const int32_t count = prompt ? prompts : rows - prompts;
      if (count == 0) continue;
      const int32_t read =
          launched_[ended_]
              .ids.as<int32_t>()[experts->num_read_at + (prompt ? 1 : 0)];
      ForMatrices(*experts, [&](const CudaLinear& linear, bool of_all_rows) {
        double bytes = 0, macs = 0;
        for (const CudaLinear::Part& part : linear.parts) {
          const auto outputs = static_cast<double>(part.source.num_rows);
          bytes += static_cast<double>(part.row_bytes) * outputs;
          macs += static_cast<double>(linear.inputs()) * outputs;
        }
        account.weight_bytes += bytes * (of_all_rows ? 1 : read);
        macs *= static_cast<double>(count *
                                    (of_all_rows ? 1 : experts->options.used));
        account.macs += macs;
        if (prompt && HasRoles(linear)) account.prompt_macs += macs;
      });
    }
  }
}

StatusOr<double> CudaBackend::SecondsOf(int (*launch)(cuda::Stream,
                                                      const cuda::PeakArgs&),
                                        const cuda::PeakArgs& args) {
  double best = 1e9;
  for (int i = 0; i < kRuns; ++i) {
    const auto begun = std::chrono::steady_clock::now();
    RETURN_IF_ERROR(
        context_->Launched(launch(context_->device().stream, args)));
    RETURN_IF_ERROR(context_->Wait());
    const std::chrono::duration<double> took =
        std::chrono::steady_clock::now() - begun;
    best = std::min(best, took.count());
  }
  return best;
}

StatusOr<RunnerRoofline> CudaBackend::MeasureRoofline() {
  cuda::PeakArgs args = {.data = weights_.data(), .sink = ids_.as<uint32_t>()};
  args.blocks = kBlocksOfMultiprocessor * context_->device().multiprocessors;
  RunnerRoofline roofline;
  // More work until its time is well above that of a launch.
  for (double seconds = 0;
       seconds < kLongEnough && args.bytes < weight_bytes_;) {
    args.bytes = std::min(weight_bytes_, 4 * args.bytes + (64 << 10));
    ASSIGN_OR_RETURN(seconds, SecondsOf(module_.read_bytes, args));
    roofline.read_bytes_per_s = static_cast<double>(args.bytes) / seconds;
  }
  for (double seconds = 0;
       seconds < kLongEnough && args.repeats < kMostRepeats;) {
    args.repeats = 4 * args.repeats + 1;
    ASSIGN_OR_RETURN(seconds, SecondsOf(module_.multiply_fragments, args));
    roofline.macs_per_s = cuda::MacsOfFragments(args) / seconds;
  }
  if (HasRoles()) roofline.prompt_macs_per_s = roofline.macs_per_s;
  return roofline;
}

}  // namespace millrace::models
