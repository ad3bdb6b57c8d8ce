// The time left beside the decodes is given to prompts in the policy's order.
#include "scheduler/step_budget.h"

#include <algorithm>

namespace millrace::scheduler {
namespace {

bool Decodes(const SequenceView& view) {
  return view.running && !view.held && view.num_tokens - view.num_computed == 1;
}

}  // namespace

int32_t RowsWithin(const StepCost& cost, double seconds, int32_t begin,
                   int32_t num_rows) {
  int32_t fit = 0;
  int32_t beyond = num_rows + 1;
  while (beyond - fit > 1) {
    const int32_t middle = fit + (beyond - fit) / 2;
    const bool fits = cost.Added(ShapeOfRows(begin, middle, 0)) <= seconds;
    (fits ? fit : beyond) = middle;
  }
  return fit;
}

StepShape ShapeOfDecodes(std::span<const SequenceView> views) {
  StepShape shape;
  for (const SequenceView& view : views) {
    if (Decodes(view)) shape += ShapeOfRows(view.num_computed, 1, 1);
  }
  return shape;
}

int32_t MostPromptRows(std::span<const SequenceView> views,
                       const StepCost& cost, double target_seconds) {
  double left = target_seconds - cost.Seconds(ShapeOfDecodes(views));
  int32_t rows = 0;
  for (const bool running : {true, false}) {
    for (const SequenceView& view : views) {
      if (view.running != running || view.held || Decodes(view)) continue;
      if (left <= 0) return std::max(rows, kLeastPromptRows);
      const int32_t lacking = view.num_tokens - view.num_computed;
      const int32_t fit = RowsWithin(cost, left, view.num_computed, lacking);
      rows += fit;
      if (fit < lacking) return std::max(rows, kLeastPromptRows);
      left -= cost.Added(ShapeOfRows(view.num_computed, fit, 0));
    }
  }
  return std::max(rows, kLeastPromptRows);
}

}  // namespace millrace::scheduler
