// A step for one tenant's prompt alone. Where a prompt stands before sequences
// of other tenants in the fair order, those leave every second step to it: its
// first token then takes about as long as on an idle server, and they get a row
// in every other step at least. No thread and no clock.
#pragma once

#include <functional>
#include <span>

#include "scheduler/policy.h"

namespace millrace::scheduler {

// Of the target for the time between tokens, what a step may take where several
// tenants are known: the prompt of one waits for the running step of another.
inline constexpr double kSharedStepPart = 0.2;

// Marks as held what stands behind the first prompt and is of another tenant
// than it. The first prompt is the first view that lacks more than its last
// token and could go on now. True if a running one is among the marked.
bool HoldBack(std::span<SequenceView> views);

// Several tenants are known to one of the views at least.
bool SeveralTenants(std::span<const SequenceView> views);

// Makes the plan of each step, one after the other.
class FairSteps {
 public:
  using Planner = std::function<Plan(std::span<const SequenceView>)>;

  // With HoldBack, unless the last step did so or the prompt does not fit.
  Plan Make(std::span<SequenceView> views, const Planner& plan);

 private:
  bool held_ = false;  // in the last step
};

}  // namespace millrace::scheduler
