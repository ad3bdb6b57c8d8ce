// Launch is the whole step. What a reader would guess wrong: sampled tokens
// join their slots' counts after all rows are sampled, so that the rows of one
// step never see one another.
#include "models/llm/cpu_runner.h"

#include <utility>

namespace millrace::models {

CpuRunner::CpuRunner(const RunnerInfo& info, std::unique_ptr<Backend> backend,
                     KvPool pool, const KernelTable& kernels, int num_workers)
    : info_(info),
      pool_(std::move(pool)),
      backend_(std::move(backend)),
      sampler_(kernels, info.vocab_size, info.limits.max_seqs),
      scratch_(static_cast<size_t>(num_workers)) {
  backend_->BindKv(pool_.data(), pool_.num_pages());
}

void CpuRunner::InitSlot(const SlotInit& init) {
  CHECK(init.slot >= 0 && init.slot < info_.limits.max_seqs,
        "slots are below max_seqs");
  sampler_.InitSlot(init);
}

void CpuRunner::Launch(const StepBatch& batch) {
  const auto samples = static_cast<size_t>(batch.num_samples);
  result_.ids.resize(samples);
  result_.logprobs.resize(samples);
  result_.top.resize(samples * kMaxTopLogprobs);
  const auto sample = [&](int worker, int num_workers) {
    for (int32_t i = worker; i < batch.num_samples; i += num_workers) {
      const int32_t row = batch.sample_rows()[i];
      const int32_t slot = batch.slot()[batch.sample_seqs()[i]];
      const Sampler::Drawn drawn =
          sampler_.Sample(slot, batch.positions()[row], batch.score_ids()[i],
                          backend_->logits(i),
                          std::span(result_.top)
                              .subspan(static_cast<size_t>(i) * kMaxTopLogprobs,
                                       kMaxTopLogprobs),
                          scratch_[static_cast<size_t>(worker)]);
      result_.ids[i] = drawn.id;
      result_.logprobs[i] = drawn.logprob;
    }
  };
  status_ = backend_->Run(batch, sample);
  if (!status_.ok()) return;
  for (int32_t i = 0; i < batch.num_samples; ++i) {
    if (batch.score_ids()[i] != kSample) continue;
    sampler_.Count(batch.slot()[batch.sample_seqs()[i]], result_.ids[i]);
  }
}

StatusOr<const StepResult*> CpuRunner::Wait() {
  if (!status_.ok()) return status_;
  return static_cast<const StepResult*>(&result_);
}

std::span<const float> CpuRunner::Logits(int32_t sample) const {
  return backend_->logits(sample);
}

}  // namespace millrace::models
