// A step for one tenant's prompt alone. While a tenant that was given less than
// the others reads a prompt, those leave every second step to it: its first
// token then takes about as long as on an idle server, and they get rows in
// every other step at least. No thread and no clock.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "config/base/clock.h"
#include "scheduler/policy.h"

namespace millrace::scheduler {

// While several tenants ask, a step may take at most a part of the target time
// between tokens, because a new prompt of one tenant waits until the running
// step of another ends. A step that holds others back may take all of it.
//
// Beside decodes the part is smaller: such a step reads the weights anyhow, so
// short chunks of prompts cost little. A prompt without decodes would pay for
// each short step.
inline constexpr double kSharedStepPart = 0.2;
inline constexpr double kSharedPartBesideDecodes = 0.1;

// Tells whether requests of several tenants came in the last 10 s: only then
// are steps kept short, because short steps cost a tenant that is alone about 6
// % of its time to the first token, and is memory for coming pages found
// between steps, which one thread does alone (in a step all members of the team
// do). The first request of a second tenant may wait for one step of the whole
// target time.
class AskingTenants {
 public:
  static constexpr std::chrono::seconds kRecent{10};

  // A request of the tenant came. Times do not go back.
  void Asked(uint32_t tenant, Clock::Time now);
  // Two tenants or more have asked since kRecent before `now`.
  bool Several(Clock::Time now) const;

 private:
  std::optional<uint32_t> last_;  // the tenant that asked last
  Clock::Time last_time_;
  std::optional<Clock::Time> other_time_;  // when another one asked last
};

// Tenants stand in the order of their last views, as start tags grow with what
// a tenant was given. Chosen is the first tenant that has a prompt which could
// go on now; views of tenants behind it are marked as held. True if a running
// one is among them. `views` as for MakePlan.
bool HoldBack(std::span<SequenceView> views);

// Several tenants are known to one of the views at least.
bool KnowSeveralTenants(std::span<const SequenceView> views);

// The views are of several tenants.
bool OfSeveralTenants(std::span<const SequenceView> views);

// The part of the target that a step of these views may take while several
// tenants ask.
double StepPart(std::span<const SequenceView> views);

// Makes the plan of each step, one after the other.
class FairSteps {
 public:
  using Planner = std::function<Plan(std::span<const SequenceView>)>;

  // With HoldBack, unless the last step did so or no prompt gets rows by it,
  // for want of a place, of pages or of samples.
  Plan Make(std::span<SequenceView> views, const Planner& plan);

 private:
  bool held_ = false;  // in the last step
};

}  // namespace millrace::scheduler
