// Launch is the whole step. The team fills masks once the logits are known,
// then draws. Sampled tokens join their slots' state after all rows are
// sampled. A row that stands behind draft tokens is told of them instead, and
// of the drawn tokens only those that follow from accepted draft tokens join.
#include "models/llm/cpu/cpu_runner.h"

#include <algorithm>
#include <utility>

namespace millrace::models {

namespace {

// The draft tokens up to and with the row of sample i: those of the rows
// behind the first one of its sequence that draws.
std::span<const int32_t> DraftsBefore(const StepBatch& batch, int32_t i) {
  const int32_t row = batch.sample_rows()[i];
  int32_t first = i;
  while (first > 0 &&
         batch.sample_seqs()[first - 1] == batch.sample_seqs()[i] &&
         batch.score_ids()[first - 1] == kSample) {
    --first;
  }
  const int32_t known = batch.sample_rows()[first];
  return batch.tokens().subspan(known + 1, row - known);
}

}  // namespace

CpuRunner::CpuRunner(const RunnerInfo& info,
                     std::unique_ptr<CpuBackend> backend, KvPool pool,
                     const KernelTable& kernels, int num_workers)
    : info_(info),
      pool_(std::move(pool)),
      backend_(std::move(backend)),
      sampler_(kernels, info.vocab_size, info.limits.max_seqs),
      masks_(sampler_),
      scratch_(static_cast<size_t>(num_workers)) {
  backend_->BindKv(pool_.data(), pool_.num_pages());
}

void CpuRunner::InitSlot(const SlotInit& init) {
  CHECK(init.slot >= 0 && init.slot < info_.limits.max_seqs,
        "slots are below max_seqs");
  sampler_.InitSlot(init);
  backend_->SetAdapter(init.slot, init.adapter);
  backend_->SetEmbeddings(init.slot, init.embeddings);
}

void CpuRunner::Launch(const StepBatch& batch) {
  const auto samples = static_cast<size_t>(batch.num_samples);
  result_.ids.resize(samples);
  result_.logprobs.resize(samples);
  result_.top.resize(samples * kMaxTopLogprobs);
  result_.mirostat_mu.resize(samples);
  if (backend_->shape().hidden_rows || !backend_->has_logits()) {
    status_ = backend_->Run(batch, {});
    return;
  }
  masks_.Begin(batch);
  const auto sample = [&](Worker& worker) {
    if (!masks_.empty()) {
      masks_.Fill();
      worker.Barrier();
    }
    for (int32_t i = worker.index(); i < batch.num_samples;
         i += worker.count()) {
      const int32_t row = batch.sample_rows()[i];
      const int32_t slot = batch.slot()[batch.sample_seqs()[i]];
      const Sampler::Drawn drawn = sampler_.Sample(
          slot, batch.positions()[row], batch.score_ids()[i],
          DraftsBefore(batch, i), backend_->logits(i),
          std::span(result_.top)
              .subspan(static_cast<size_t>(i) * kMaxTopLogprobs,
                       kMaxTopLogprobs),
          scratch_[static_cast<size_t>(worker.index())], masks_.Of(i));
      result_.ids[i] = drawn.id;
      result_.logprobs[i] = drawn.logprob;
      result_.mirostat_mu[i] = drawn.mirostat_mu;
    }
  };
  status_ = backend_->Run(batch, sample);
  if (!status_.ok()) return;
  bool counts = true;
  for (int32_t i = 0; i < batch.num_samples; ++i) {
    if (batch.score_ids()[i] != kSample) continue;
    if (DraftsBefore(batch, i).empty()) {
      counts = true;
    } else {
      // The row holds a draft token: was it the token the row before drew?
      counts = counts &&
               batch.tokens()[batch.sample_rows()[i]] == result_.ids[i - 1];
    }
    if (!counts) continue;
    sampler_.Count(batch.slot()[batch.sample_seqs()[i]],
                   {.id = result_.ids[i],
                    .logprob = result_.logprobs[i],
                    .mirostat_mu = result_.mirostat_mu[i]});
  }
}

StatusOr<const StepResult*> CpuRunner::Wait() {
  if (!status_.ok()) return status_;
  return static_cast<const StepResult*>(&result_);
}

void CpuRunner::ReadPage(PageId page, std::span<std::byte> bytes) const {
  std::ranges::copy(pool_.page(page), bytes.begin());
}

void CpuRunner::WritePage(PageId page, std::span<const std::byte> bytes) {
  std::ranges::copy(bytes, pool_.page(page).begin());
}

std::span<const float> CpuRunner::Logits(int32_t sample) const {
  return backend_->logits(sample);
}

}  // namespace millrace::models
