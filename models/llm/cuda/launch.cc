// Running: a step's message goes to the device, its phases are launched in
// order, and the ids come back. Marks (CUDA events) stand before and behind all
// phases, and behind each while a capture traces steps and in one of many steps
// besides. A mark that fails takes the step's times away and nothing else.
#include <algorithm>
#include <vector>

#include "config/base/log.h"
#include "models/llm/cuda/cuda_backend.h"

namespace millrace::models {

Status CudaBackend::Launch(const StepBatch& batch,
                           std::span<const cuda::DrawRow> draws) {
  CHECK(pages_.data() != nullptr, "memory is bound before the first step");
  CHECK(batch.num_tokens <= limits_.max_tokens &&
            batch.num_samples <= limits_.max_samples &&
            batch.num_seqs <= limits_.max_seqs,
        "a step keeps its limits");
  message_.Fill(batch, DrawsOf(batch, draws), step_on_host_.as<int32_t>());
  num_samples_ = batch.num_samples;
  BeginTimes();
  const Status launched = LaunchStep(batch);
  if (is_timed_ && !is_marked_) KeepTimes(timer_.Mark());
  return launched;
}

Status CudaBackend::LaunchStep(const StepBatch& batch) {
  RETURN_IF_ERROR(
      context_->Upload(step_.data(), step_on_host_.data(), message_.bytes()));
  RETURN_IF_ERROR(UploadAdapters(batch));
  const Step step = {.message = step_.as<int32_t>(),
                     .num_tokens = message_.num_rows,
                     .num_prompt_rows = message_.num_prompt_rows,
                     .first_prompt_row = message_.first_prompt_row,
                     .end_prompt_row = message_.end_prompt_row,
                     .num_samples = message_.num_samples,
                     .num_copies = batch.num_copies,
                     .all_sample = message_.all_sample};
  const auto launch = [&] { return LaunchPhases(step); };
  if (!message_.padded || trace_ != nullptr) return EndOfLaunch(launch());
  std::vector<int64_t> layout = message_.Layout();
  const std::vector<int64_t> lora = lora_.Layout();
  layout.insert(layout.end(), lora.begin(), lora.end());
  const Status launched = EndOfLaunch(graphs_.Run(layout, launch, is_marked_));
  if (is_marked_ && launched.ok()) timer_.Ran(phases_.size());
  return launched;
}

Status CudaBackend::LaunchPhases(const Step& step) {
  for (const Phase& phase : phases_) {
    RETURN_IF_ERROR(WhyNotLaunched(phase.launch(step)));
    if (gpus_ != nullptr) RETURN_IF_ERROR(gpus_->status());
    if (is_marked_) KeepTimes(timer_.Mark());
  }
  const int64_t bytes = (num_counts() + step.num_samples) * 4;
  if (bytes == 0 || rank() > 0) return OkStatus();
  return context_->Download(ids_on_host_.data(), ids_.data(), bytes);
}

Status CudaBackend::DownloadLogits() {
  return context_->Download(logits_on_host_.data(), logits_.data(),
                            num_samples_ * logits_.pitch * 4);
}

std::span<const int32_t> CudaBackend::ids() const {
  return {ids_on_host_.as<int32_t>() + num_counts(),
          static_cast<size_t>(num_samples_)};
}

std::span<float> CudaBackend::logits(int32_t sample) {
  return {logits_on_host_.as<float>() + sample * logits_.pitch,
          static_cast<size_t>(LogitsWidth(shape()))};
}

void CudaBackend::BeginTimes() {
  step_kind_ = message_.num_prompt_rows > 0 ? PhaseClock::kPrompts
                                            : PhaseClock::kCompletions;
  step_seconds_ = {};
  // Ranks of a group ask at the same steps, so that they capture the same.
  const bool asks = clock_.AsksForMarks(step_kind_);
  const bool is_traced = trace_ != nullptr;
  is_timed_ = is_traced || !clock_failed_;
  is_marked_ = is_traced || (asks && !clock_failed_);
  if (is_traced) trace_->members.assign(1, {});  // the device
  if (is_marked_) KeepTimes(timer_.Reserve(phases_.size()));
  if (is_timed_) KeepTimes(timer_.Begin());
}

void CudaBackend::KeepTimes(const Status& marked) {
  if (marked.ok()) return;
  LogWarning("the phases of a step have no times", {{"why", marked.message()}});
  // A graph that was being captured may lack marks: it does not run again.
  if (trace_ == nullptr) clock_failed_ = true;
  is_timed_ = false;
  is_marked_ = false;
}

Status CudaBackend::Wait() {
  const Status ended = gpus_ == nullptr ? context_->Wait() : gpus_->Wait();
  step_adapters_.clear();  // which may be the last to hold them
  RETURN_IF_ERROR(ended);
  if (!is_timed_) return OkStatus();
  const StatusOr<std::vector<StreamTimer::Time>> times = timer_.Times();
  KeepTimes(times.status());
  if (!is_timed_) return OkStatus();
  KeepSeconds(*times);
  return OkStatus();
}

void CudaBackend::KeepSeconds(const std::vector<StreamTimer::Time>& times) {
  const auto seconds = [&](size_t from, size_t to) {
    return std::chrono::duration<double>(times[to] - times[from]).count();
  };
  if (!is_marked_) {
    if (times.size() < 2) return;  // the last mark failed
    step_seconds_ = clock_.Split(step_kind_, seconds(0, 1));
    return;
  }
  // Fewer than phases where one was not launched.
  for (size_t i = 0; i + 1 < times.size(); ++i) {
    const Phase& phase = phases_[i];
    step_seconds_[static_cast<size_t>(phase.phase)] += seconds(i, i + 1);
    if (trace_ == nullptr) continue;
    trace_->members[0].push_back({.phase = phase.phase,
                                  .layer = std::max(phase.layer, 0),
                                  .begin = times[i],
                                  .end = times[i + 1]});
  }
  clock_.KeepSplit(step_kind_, step_seconds_);
}

}  // namespace millrace::models
