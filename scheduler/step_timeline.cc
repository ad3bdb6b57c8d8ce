#include "scheduler/step_timeline.h"

#include <utility>

namespace millrace::scheduler {

StepTimeline::StepTimeline(Timeline* timeline, const std::string& model)
    : timeline_(timeline), process_("model " + model) {
  if (timeline_ != nullptr) track_ = timeline_->Track(process_, "steps");
}

void StepTimeline::Prepare(models::Runner& runner) {
  const bool wanted = on();
  if (wanted == asked_) return;
  asked_ = wanted;
  runner.TraceSteps(wanted ? &trace_ : nullptr);
}

void StepTimeline::Add(const Step& step) {
  if (!on()) return;
  std::vector<TimelineSlice> slices;
  slices.push_back({.track = track_,
                    .name = step.prompt_rows == 0           ? "decode"
                            : step.prompt_rows == step.rows ? "prefill"
                                                            : "mixed",
                    .begin = step.begin,
                    .end = step.end,
                    .numbers = {{{"rows", step.rows},
                                 {"prompt_rows", step.prompt_rows},
                                 {"sequences", step.sequences}}}});
  if (asked_) {
    for (size_t member = 0; member < trace_.members.size(); ++member) {
      if (member >= member_tracks_.size()) {
        member_tracks_.push_back(
            timeline_->Track(process_, "worker " + std::to_string(member)));
      }
      for (const models::PhaseSpan& span : trace_.members[member]) {
        slices.push_back(
            {.track = member_tracks_[member],
             .name = models::kStepPhaseNames[static_cast<size_t>(span.phase)],
             .begin = span.begin,
             .end = span.end,
             .numbers = {{{"layer", span.layer}}}});
      }
    }
  }
  timeline_->Add(std::move(slices));
}

}  // namespace millrace::scheduler
