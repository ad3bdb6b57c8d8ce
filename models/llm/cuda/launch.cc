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
  CHECK(num_in_flight_ == 0 || MayLaunchAhead(),
        "a step that needs the host is waited for before the next one");
  newest_ = num_in_flight_ == 0 ? 0 : 1 - newest_;
  ++num_in_flight_;
  Launched& launched = launched_[newest_];
  message_.Fill(batch, DrawsOf(batch, draws), launched.message.as<int32_t>());
  launched.num_samples = batch.num_samples;
  launched.num_prompt_rows = message_.num_prompt_rows;
  launched.has_end = false;
  BeginTimes(launched);
  const Status started = LaunchStep(batch);
  if (launched.is_timed && !launched.is_marked) {
    KeepTimes(launched.timer.Mark(), launched);
  }
  launched.has_end = started.ok() && context_->Record(launched.end).ok();
  return started;
}

Status CudaBackend::LaunchStep(const StepBatch& batch) {
  Launched& launched = launched_[newest_];
  RETURN_IF_ERROR(context_->Upload(step_.data(), launched.message.data(),
                                   message_.bytes()));
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
  Status started;
  if (!message_.padded || trace_ != nullptr) {
    started = launch();
  } else {
    std::vector<int64_t> layout = message_.Layout();
    const std::vector<int64_t> lora = lora_.Layout();
    layout.insert(layout.end(), lora.begin(), lora.end());
    started = graphs_.Run(layout, launch, launched.is_marked);
    if (launched.is_marked && started.ok()) {
      launched.timer.Ran(phases_.size());
    }
  }
  return EndOfLaunch(started.ok() ? DownloadIds() : started);
}

Status CudaBackend::LaunchPhases(const Step& step) {
  Launched& launched = launched_[newest_];
  for (const Phase& phase : phases_) {
    RETURN_IF_ERROR(WhyNotLaunched(phase.launch(step)));
    if (gpus_ != nullptr) RETURN_IF_ERROR(gpus_->status());
    if (launched.is_marked) KeepTimes(launched.timer.Mark(), launched);
  }
  return OkStatus();
}

// No part of the step's graph, which serves both steps in flight.
Status CudaBackend::DownloadIds() {
  const int64_t bytes = (num_counts() + message_.num_samples) * 4;
  if (bytes == 0 || rank() > 0) return OkStatus();
  return context_->Download(launched_[newest_].ids.data(), ids_.data(), bytes);
}

bool CudaBackend::MayLaunchAhead() const {
  return ahead_ && num_in_flight_ == 1 && trace_ == nullptr &&
         launched_[newest_].has_end;
}

Status CudaBackend::DownloadLogits() {
  return context_->Download(logits_on_host_.data(), logits_.data(),
                            launched_[newest_].num_samples * logits_.pitch * 4);
}

std::span<const int32_t> CudaBackend::ids() const {
  const Launched& ended = launched_[ended_];
  return {ended.ids.as<int32_t>() + num_counts(),
          static_cast<size_t>(ended.num_samples)};
}

std::span<float> CudaBackend::logits(int32_t sample) {
  return {logits_on_host_.as<float>() + sample * logits_.pitch,
          static_cast<size_t>(LogitsWidth(shape()))};
}

void CudaBackend::BeginTimes(Launched& launched) {
  launched.kind = message_.num_prompt_rows > 0 ? PhaseClock::kPrompts
                                               : PhaseClock::kCompletions;
  // Ranks of a group ask at the same steps, so that they capture the same. A
  // graph has the marks of one timer.
  const bool asks = newest_ == 0 && clock_.AsksForMarks(launched.kind);
  const bool is_traced = trace_ != nullptr;
  launched.is_timed = is_traced || !clock_failed_;
  launched.is_marked = is_traced || (asks && !clock_failed_);
  if (is_traced) trace_->members.assign(1, {});  // the device
  if (launched.is_marked) {
    KeepTimes(launched.timer.Reserve(phases_.size()), launched);
  }
  if (launched.is_timed) KeepTimes(launched.timer.Begin(), launched);
}

void CudaBackend::KeepTimes(const Status& marked, Launched& launched) {
  if (marked.ok()) return;
  LogWarning("the phases of a step have no times", {{"why", marked.message()}});
  // A graph that was being captured may lack marks: it does not run again.
  if (trace_ == nullptr) clock_failed_ = true;
  launched.is_timed = false;
  launched.is_marked = false;
}

Status CudaBackend::Wait() {
  CHECK(num_in_flight_ > 0, "a step that is waited for was launched");
  const bool is_alone = --num_in_flight_ == 0;
  ended_ = is_alone ? newest_ : 1 - newest_;
  Launched& launched = launched_[ended_];
  step_seconds_ = {};
  const Status ended = gpus_ != nullptr ? gpus_->Wait()
                       : is_alone       ? context_->Wait()
                                        : context_->Await(launched.end);
  launched.adapters.clear();  // which may be the last to hold them
  RETURN_IF_ERROR(ended);
  if (!launched.is_timed) return OkStatus();
  const StatusOr<std::vector<StreamTimer::Time>> times = launched.timer.Times();
  KeepTimes(times.status(), launched);
  if (launched.is_timed) KeepSeconds(*times, launched);
  return OkStatus();
}

void CudaBackend::KeepSeconds(const std::vector<StreamTimer::Time>& times,
                              const Launched& launched) {
  const auto seconds = [&](size_t from, size_t to) {
    return std::chrono::duration<double>(times[to] - times[from]).count();
  };
  if (!launched.is_marked) {
    if (times.size() < 2) return;  // the last mark failed
    step_seconds_ = clock_.Split(launched.kind, seconds(0, 1));
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
  clock_.KeepSplit(launched.kind, step_seconds_);
}

}  // namespace millrace::models
