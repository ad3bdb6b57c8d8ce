#include "scheduler/hold_back.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>

namespace millrace::scheduler {
namespace {

bool IsPrompt(const SequenceView& view) {
  if (view.running) return view.num_tokens - view.num_computed > 1;
  return view.waits_for < 0 && !view.fetching;
}

// Running prompts, and waiting sequences that start.
bool HasPromptRows(const Plan& plan, std::span<const SequenceView> views) {
  return std::ranges::any_of(plan.rows, [&](const PlannedRows& rows) {
    return IsPrompt(views[rows.sequence]);
  });
}

}  // namespace

bool HoldBack(std::span<SequenceView> views) {
  if (!KnowSeveralTenants(views)) return false;
  std::map<uint32_t, size_t> last;
  for (size_t i = 0; i < views.size(); ++i) last[views[i].tenant] = i;
  size_t chosen = views.size();
  for (const SequenceView& view : views) {
    if (IsPrompt(view)) chosen = std::min(chosen, last[view.tenant]);
  }
  bool holds = false;
  for (SequenceView& view : views) {
    view.held = last[view.tenant] > chosen;
    holds = holds || (view.held && view.running);
  }
  return holds;
}

bool KnowSeveralTenants(std::span<const SequenceView> views) {
  return std::ranges::any_of(
      views, [](const SequenceView& view) { return !view.tenant_alone; });
}

bool OfSeveralTenants(std::span<const SequenceView> views) {
  return std::ranges::any_of(views, [&](const SequenceView& view) {
    return view.tenant != views.front().tenant;
  });
}

double StepPart(std::span<const SequenceView> views) {
  if (std::ranges::any_of(views, &SequenceView::held)) return 1;
  const bool decodes = std::ranges::any_of(views, [](const auto& view) {
    return view.running && view.num_tokens - view.num_computed == 1;
  });
  return decodes ? kSharedPartBesideDecodes : kSharedStepPart;
}

void AskingTenants::Asked(uint32_t tenant, Clock::Time now) {
  if (last_ && tenant != *last_) other_time_ = last_time_;
  last_ = tenant;
  last_time_ = now;
}

bool AskingTenants::Several(Clock::Time now) const {
  return other_time_ && now - *other_time_ <= kRecent;
}

Plan FairSteps::Make(std::span<SequenceView> views, const Planner& plan) {
  if (!held_ && HoldBack(views)) {
    Plan made = plan(views);
    held_ = HasPromptRows(made, views);
    if (held_) return made;
  }
  held_ = false;
  for (SequenceView& view : views) view.held = false;
  return plan(views);
}

}  // namespace millrace::scheduler
