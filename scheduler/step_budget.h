// How many prompt rows a step may take beside its decodes so that running
// completions meet the target time between tokens. A pure function of what the
// policy sees.
#pragma once

#include <cstdint>
#include <span>

#include "scheduler/policy.h"
#include "scheduler/step_cost.h"

namespace millrace::scheduler {

// Prompts go on by this much in every step, whatever the target.
inline constexpr int32_t kLeastPromptRows = 16;

// What the rows of all decodes among `views` come to, draft tokens and views
// that are held left out.
StepShape ShapeOfDecodes(std::span<const SequenceView> views);

// Most rows from `begin` on, at most `num_rows`, that cost `seconds` together.
int32_t RowsWithin(const StepCost& cost, double seconds, int32_t begin,
                   int32_t num_rows);

// The most prompt rows with which a step of these decodes is expected to take
// `target_seconds`, at least kLeastPromptRows. Rows are counted where they
// would run: in the order of the views, deep rows for more than shallow ones.
// Views that are held have no rows.
int32_t MostPromptRows(std::span<const SequenceView> views,
                       const StepCost& cost, double target_seconds);

}  // namespace millrace::scheduler
