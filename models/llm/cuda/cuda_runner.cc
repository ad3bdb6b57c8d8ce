#include "models/llm/cuda/cuda_runner.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace millrace::models {
namespace {

// The samples of a sequence from `begin` on: their end.
int32_t EndOfSequence(const StepBatch& batch, int32_t begin) {
  const auto seqs = batch.sample_seqs();
  int32_t end = begin;
  while (end < batch.num_samples &&
         seqs[static_cast<size_t>(end)] == seqs[static_cast<size_t>(begin)]) {
    ++end;
  }
  return end;
}

}  // namespace

CudaRunner::CudaRunner(const RunnerInfo& info,
                       std::unique_ptr<CudaBackend> backend,
                       const KernelTable& kernels)
    : info_(info),
      backend_(std::move(backend)),
      sampler_(kernels, info.vocab_size, info.limits.max_seqs) {}

void CudaRunner::InitSlot(const SlotInit& init) {
  CHECK(init.slot >= 0 && init.slot < info_.limits.max_seqs,
        "slots are below max_seqs");
  sampler_.InitSlot(init);
  backend_->SetAdapter(init.slot, init.adapter);
}

void CudaRunner::Launch(const StepBatch& batch) {
  CHECK(num_in_flight_ == 0 || MayLaunchAhead(),
        "a step that needs the host is waited for before the next one");
  Launched& step = in_flight_[num_in_flight_++];
  step.batch = &batch;
  step.needs_host = true;
  step.status = StartStep(step);
}

bool CudaRunner::MayLaunchAhead() const {
  return num_in_flight_ == 1 && in_flight_[0].status.ok() &&
         !in_flight_[0].needs_host && backend_->MayLaunchAhead();
}

Status CudaRunner::StartStep(Launched& step) {
  if (backend_->rank() > 0) return backend_->Launch(*step.batch);
  if (backend_->shape().hidden_rows) {
    RETURN_IF_ERROR(backend_->Launch(*step.batch));
    return backend_->DownloadLogits();
  }
  step.needs_host = AskForDraws(step);
  RETURN_IF_ERROR(backend_->Launch(*step.batch, draws_));
  return step.needs_host ? backend_->DownloadLogits() : OkStatus();
}

RunnerRoofline CudaRunner::MeasureRoofline() {
  const StatusOr<RunnerRoofline> measured = backend_->MeasureRoofline();
  return measured.ok() ? *measured : RunnerRoofline{};
}

bool CudaRunner::AskForDraws(Launched& step) {
  const StepBatch& batch = *step.batch;
  const auto samples = static_cast<size_t>(batch.num_samples);
  draws_.assign(samples, {});
  step.takes_id.assign(samples, true);
  bool any = false;
  for (size_t s = 0; s < samples; ++s) {
    const auto seq = static_cast<size_t>(batch.sample_seqs()[s]);
    const int32_t slot = batch.slot()[seq];
    const auto row = static_cast<size_t>(batch.sample_rows()[s]);
    const auto draw = sampler_.PlainDrawOf(slot, batch.positions()[row]);
    if (batch.score_ids()[s] != kSample ||
        (!draw && !sampler_.TakesGreatest(slot))) {
      step.takes_id[s] = false;
    } else if (draw) {
      any = true;
      draws_[s] = {.inverse_temperature = draw->inverse_temperature,
                   .top_k = draw->top_k,
                   .top_p = draw->top_p,
                   .min_p = draw->min_p,
                   .random_low = static_cast<uint32_t>(draw->random),
                   .random_high = static_cast<uint32_t>(draw->random >> 32)};
    }
  }
  if (!any) draws_.clear();
  return std::ranges::find(step.takes_id, false) != step.takes_id.end();
}

StatusOr<const StepResult*> CudaRunner::Wait() {
  CHECK(num_in_flight_ > 0, "a step that is waited for was launched");
  // Also after a phase that did not start: those before it may run.
  const Status ended = backend_->Wait();
  std::swap(in_flight_[0], in_flight_[1]);
  --num_in_flight_;
  const Launched& step = in_flight_[1];
  const StepBatch& batch = *step.batch;
  RETURN_IF_ERROR(step.status);
  RETURN_IF_ERROR(ended);
  account_ = backend_->Account(batch);
  const auto samples = static_cast<size_t>(batch.num_samples);
  result_.ids.resize(samples);
  result_.logprobs.resize(samples);
  result_.top.resize(samples * kMaxTopLogprobs);
  result_.mirostat_mu.assign(samples, 0.0f);
  // Hidden rows are shown by LogitsView. Of a group rank 0 draws.
  if (backend_->shape().hidden_rows || backend_->rank() > 0) {
    return static_cast<const StepResult*>(&result_);
  }
  const auto begun = std::chrono::steady_clock::now();
  for (int32_t i = 0; i < batch.num_samples;) {
    const int32_t end = EndOfSequence(batch, i);
    DrawSequence(step, i, end);
    i = end;
  }
  Count(batch);
  const auto ended_drawing = std::chrono::steady_clock::now();
  account_.seconds[static_cast<size_t>(StepPhase::kSample)] +=
      std::chrono::duration<double>(ended_drawing - begun).count();
  if (trace_ != nullptr) {
    trace_->members[0].push_back({.phase = StepPhase::kSample,
                                  .layer = 0,
                                  .begin = begun,
                                  .end = ended_drawing});
  }
  return static_cast<const StepResult*>(&result_);
}

void CudaRunner::DrawSequence(const Launched& step, int32_t begin,
                              int32_t end) {
  const StepBatch& batch = *step.batch;
  const auto seq =
      static_cast<size_t>(batch.sample_seqs()[static_cast<size_t>(begin)]);
  const int32_t slot = batch.slot()[seq];
  // The first row that draws; those behind it hold draft tokens.
  int32_t first = begin;
  while (first < end &&
         batch.score_ids()[static_cast<size_t>(first)] != kSample)
    ++first;
  const auto drafts_before = [&](int32_t i) {
    if (i <= first) return std::span<const int32_t>();
    const int32_t known = batch.sample_rows()[static_cast<size_t>(first)];
    const int32_t row = batch.sample_rows()[static_cast<size_t>(i)];
    return batch.tokens().subspan(static_cast<size_t>(known + 1),
                                  static_cast<size_t>(row - known));
  };
  masks_.clear();
  const size_t words = sampler_.mask_words();
  if (first < end && sampler_.NeedsMasks(slot)) {
    masks_.resize(words * static_cast<size_t>(end - first));
    sampler_.FillMasks(slot, drafts_before(end - 1), masks_);
  }
  for (int32_t i = begin; i < end; ++i) {
    const auto s = static_cast<size_t>(i);
    const std::span<TokenLogprob> top =
        std::span(result_.top).subspan(s * kMaxTopLogprobs, kMaxTopLogprobs);
    if (step.takes_id[s]) {
      std::ranges::fill(top, TokenLogprob{-1, 0.0f});
      result_.ids[s] = backend_->ids()[s];
      result_.logprobs[s] = 0;
      continue;
    }
    const auto row = static_cast<size_t>(batch.sample_rows()[s]);
    std::span<const uint32_t> mask;
    if (!masks_.empty() && i >= first) {
      mask = std::span(masks_).subspan(words * static_cast<size_t>(i - first),
                                       words);
    }
    const Sampler::Drawn drawn = sampler_.Sample(
        slot, batch.positions()[row], batch.score_ids()[s], drafts_before(i),
        backend_->logits(i), top, scratch_, mask);
    result_.ids[s] = drawn.id;
    result_.logprobs[s] = drawn.logprob;
    result_.mirostat_mu[s] = drawn.mirostat_mu;
  }
}

// Drawn tokens join their slots, of those behind draft tokens only the ones
// whose draft tokens were drawn, too.
void CudaRunner::Count(const StepBatch& batch) {
  int32_t seq = -1;  // of the row before that drew
  bool counts = true;
  for (size_t i = 0; i < result_.ids.size(); ++i) {
    if (batch.score_ids()[i] != kSample) continue;
    if (batch.sample_seqs()[i] != seq) {
      seq = batch.sample_seqs()[i];
      counts = true;
    } else {
      const auto row = static_cast<size_t>(batch.sample_rows()[i]);
      counts = counts && batch.tokens()[row] == result_.ids[i - 1];
    }
    if (!counts) continue;
    sampler_.Count(batch.slot()[static_cast<size_t>(seq)],
                   {.id = result_.ids[i],
                    .logprob = result_.logprobs[i],
                    .mirostat_mu = result_.mirostat_mu[i]});
  }
}

std::span<const float> CudaRunner::Logits(int32_t sample) const {
  return backend_->logits(sample);
}

}  // namespace millrace::models
