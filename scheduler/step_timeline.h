// Records in a capture the steps of a language model, and the phases that each
// member of its team ran.
//
// Engine thread only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/base/clock.h"
#include "config/base/timeline.h"
#include "models/llm/runner.h"

namespace millrace::scheduler {

class StepTimeline {
 public:
  // `timeline` may be null: nothing is recorded.
  StepTimeline(Timeline* timeline, const std::string& model);

  struct Step {
    Clock::Time begin;
    Clock::Time end;
    int32_t rows = 0;
    int32_t prompt_rows = 0;  // of those
    int32_t sequences = 0;
  };

  bool on() const { return timeline_ != nullptr && timeline_->on(); }
  // Before a step: whether the runner shall tell its phases.
  void Prepare(models::Runner& runner);
  void Add(const Step& step);

 private:
  Timeline* const timeline_;
  const std::string process_;
  int track_ = 0;
  bool asked_ = false;  // the runner records its phases
  models::StepTrace trace_;
  std::vector<int> member_tracks_;
};

}  // namespace millrace::scheduler
