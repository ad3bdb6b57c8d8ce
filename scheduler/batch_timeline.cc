#include "scheduler/batch_timeline.h"

#include <utility>
#include <vector>

namespace millrace::scheduler {

BatchTimeline::BatchTimeline(Timeline* timeline, const std::string& model)
    : timeline_(timeline), process_("model " + model) {}

void BatchTimeline::Add(const Batch& batch, const models::graph::Trace& trace) {
  int number = 0;
  {
    MutexLock lock(mu_);
    number =
        instances_.emplace(batch.context, static_cast<int>(instances_.size()))
            .first->second;
  }
  const std::string instance = "instance " + std::to_string(number);
  std::vector<TimelineSlice> slices;
  slices.push_back(
      {.track = timeline_->Track(process_, instance),
       .name = "batch",
       .begin = batch.begin,
       .end = batch.end,
       .numbers = {{{"rows", batch.rows}, {"requests", batch.requests}}}});
  if (batch.values > 0) {
    slices[0].numbers[2] = {"values", static_cast<double>(batch.values)};
    slices[0].numbers[3] = {"padding", static_cast<double>(batch.padding)};
  }
  for (size_t member = 0; member < trace.spans.size(); ++member) {
    const int track = timeline_->Track(
        process_, instance + " worker " + std::to_string(member));
    for (size_t i = 0; i < trace.steps.size(); ++i) {
      const models::graph::StepSpan& span = trace.spans[member][i];
      if (span.end_ns == 0) continue;
      slices.push_back(
          {.track = track,
           .name = "operator",
           .label = trace.steps[i].text,
           .begin = batch.run_begin + std::chrono::nanoseconds(span.begin_ns),
           .end = batch.run_begin + std::chrono::nanoseconds(span.end_ns),
           .numbers = {{{"macs", trace.steps[i].macs},
                        {"bytes", trace.steps[i].bytes}}}});
    }
  }
  timeline_->Add(std::move(slices));
}

}  // namespace millrace::scheduler
