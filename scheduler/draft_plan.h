// How many tokens a draft model should draft for each sequence: as many as give
// the most tokens a second, the draft model's own time counted. A pure function
// of prices and rates.
//
// A level is one step of the draft model: it drafts the next token of each of
// its sequences, and reads all of its weights for that. So a level pays for
// many sequences sooner than for one, while the rows to check pay sooner beside
// few.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "scheduler/step_cost.h"

namespace millrace::scheduler {

struct DraftCandidate {
  double rate = 0;          // chance of a draft token behind accepted ones
  int32_t num_tokens = 0;   // known
  int32_t max_tokens = 0;   // draft tokens
  int32_t num_lacking = 0;  // rows the draft model has to compute before
  int32_t num_left = 0;     // tokens that its output may still get
};

struct DraftPrices {
  const StepCost& model;  // both are known
  const StepCost& draft;
};

// Tokens to draft for each candidate, zeros where nothing pays. `decodes` are
// all rows of the step without draft tokens. Rows that lack are an expense of
// once: they are left alone where the rest of the completion would not save as
// much.
std::vector<int32_t> PlanDrafts(std::span<const DraftCandidate> candidates,
                                const StepShape& decodes,
                                const DraftPrices& prices);

}  // namespace millrace::scheduler
