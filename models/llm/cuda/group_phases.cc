// What a rank of a group does beside its own part of a step: sums over the
// ranks, and logits that come to rank 0.
#include <algorithm>
#include <utility>

#include "models/llm/cuda/cuda_backend.h"
#include "models/llm/cuda/cuda_linear.h"

namespace millrace::models {

int64_t CudaBackend::WidthOfPart() const {
  const int64_t size = gpus_->size();
  const int64_t groups =
      (int64_t{shape().vocab} + kLogitGroup - 1) / kLogitGroup;
  return (groups + size - 1) / size * kLogitGroup;
}

Status CudaBackend::BindGroup() {
  if (gpus_ == nullptr) return OkStatus();
  RETURN_IF_ERROR(
      AllocateRows(own_logits_, limits_.max_samples, WidthOfPart()));
  return AllocateRows(all_logits_, limits_.max_samples * gpus_->size(),
                      WidthOfPart());
}

bool CudaBackend::SumBranch(int32_t rows) {
  if (gpus_ == nullptr || rows == 0) return true;
  return gpus_->AllReduceSum(branch_.data(), rows * branch_.pitch).ok();
}

const CudaBackend::CudaLinear& CudaBackend::HeadOf(const CudaLinear& whole) {
  const LogitRange own = shape().logits;
  if (gpus_ == nullptr || whole.outputs() == own.count()) return whole;
  // The table of the embedding, of which the rank reads its own rows.
  CHECK(whole.parts.size() == 1 && whole.bias < 0, "a table has one type");
  auto head =
      std::make_unique<CudaLinear>(whole.inputs(), own.count(), whole.rounding);
  head->exact = whole.exact;
  head->parts = whole.parts;
  CudaLinear::Part& rows = head->parts.front();
  rows.at += own.begin * rows.row_bytes;
  rows.source = rows.source.Part(own.begin, own.count());
  return *linears_.emplace_back(std::move(head));
}

int CudaBackend::MultiplyHead(const Step& step, const CudaLinear& w,
                              const Input& x) {
  if (gpus_ == nullptr) return Multiply(step, true, w, x, logits_);
  if (step.num_samples == 0) return 0;
  if (const int error = Multiply(step, true, w, x, own_logits_)) return error;
  const int64_t values = step.num_samples * own_logits_.pitch;
  const Status gathered =
      gpus_->AllGather(own_logits_.data(), all_logits_.data(), values);
  if (!gathered.ok() || rank() > 0) return 0;
  // From [rank][row][width] to the rows of logits.
  for (int32_t from = 0; from < gpus_->size(); ++from) {
    const LogitRange range = LogitsOf(shape().vocab, from, gpus_->size());
    const int error = module_.graph_copy_strided(
        context_->device().stream, {.rank = 2,
                                    .count = step.num_samples * range.count(),
                                    .sizes = {step.num_samples, range.count()},
                                    .from_strides = {all_logits_.pitch, 1},
                                    .to_strides = {logits_.pitch, 1},
                                    .from = all_logits_.data() + from * values,
                                    .to = logits_.data() + range.begin});
    if (error != 0) return error;
  }
  return 0;
}

std::span<const cuda::DrawRow> CudaBackend::DrawsOf(
    const StepBatch& batch, std::span<const cuda::DrawRow> draws) {
  if (gpus_ == nullptr || rank() > 0 || !draws.empty()) return draws;
  no_draws_.assign(static_cast<size_t>(batch.num_samples), {});
  return no_draws_;
}

Status CudaBackend::EndOfLaunch(const Status& launched) {
  if (gpus_ == nullptr || launched.ok()) return launched;
  return gpus_->Break(launched);
}

}  // namespace millrace::models
