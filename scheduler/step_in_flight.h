// A step from its launch until its results are read. Where two are in flight
// (models/llm/runner_ahead.h) the second was planned before the first one's
// tokens were known. A sequence that ends meanwhile leaves rows in it that are
// computed for nothing: their job is null.
//
// Engine thread only.
#pragma once

#include <cstdint>
#include <vector>

#include "config/base/clock.h"
#include "models/llm/step.h"
#include "scheduler/job.h"
#include "scheduler/policy.h"
#include "scheduler/step_cost.h"
#include "scheduler/step_timeline.h"

namespace millrace::scheduler {

struct StepInFlight {
  explicit StepInFlight(const models::StepLimits& limits) : batch(limits) {}

  struct Rows {
    Job* job;  // null: it has ended since
    PlannedRows planned;
  };

  models::StepBatch batch;
  StepShape shape;          // of the batch
  std::vector<Rows> rows;   // of its sequences, in order
  bool has_drafts = false;  // draft tokens are checked in it
  bool is_ahead = false;    // launched while the step before ran
  Clock::Time launched;
  StepTimeline::Step timeline;  // while a capture runs
};

}  // namespace millrace::scheduler
