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

}  // namespace

bool HoldBack(std::span<SequenceView> views) {
  if (!SeveralTenants(views)) return false;
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
