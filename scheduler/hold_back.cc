#include "scheduler/hold_back.h"

#include <algorithm>

namespace millrace::scheduler {
namespace {

bool IsPrompt(const SequenceView& view) {
  if (view.running) return view.num_tokens - view.num_computed > 1;
  return view.waits_for < 0 && !view.fetching;
}

}  // namespace

bool HoldBack(std::span<SequenceView> views) {
  const auto first = std::ranges::find_if(views, IsPrompt);
  if (first == views.end()) return false;
  bool holds = false;
  for (SequenceView& view : views.subspan(first - views.begin())) {
    view.held = view.tenant != first->tenant;
    holds = holds || (view.held && view.running);
  }
  return holds;
}

bool SeveralTenants(std::span<const SequenceView> views) {
  return std::ranges::any_of(
      views, [](const SequenceView& view) { return !view.tenant_alone; });
}

Plan FairSteps::Make(std::span<SequenceView> views, const Planner& plan) {
  if (!held_ && HoldBack(views)) {
    Plan made = plan(views);
    held_ = !made.rows.empty();
    if (held_) return made;
  }
  held_ = false;
  for (SequenceView& view : views) view.held = false;
  return plan(views);
}

}  // namespace millrace::scheduler
