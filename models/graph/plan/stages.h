// Which steps of a plan run between the same two barriers.
//
//   q = Linear(x)    ┐
//   k = Linear(x)    │ one stage: none reads what another one writes, so who is
//   v = Linear(x)    ┘ done with its part of q begins with k
//   ───────────────    barrier
//   Attention(q, k, v)
//
// A step that cannot be split is one member's alone. Several of them in a stage
// are dealt out, so that branches of a graph run side by side; one that reads
// what such a step wrote follows it on the same member, without a barrier.
#pragma once

#include <cstdint>
#include <vector>

#include "models/graph/plan/step.h"

namespace millrace::models::graph {

struct StepPlace {
  // All members do their part.
  static constexpr int32_t kTeam = -1;

  int32_t stage = 0;  // ascending over the steps
  int32_t member = kTeam;

  bool operator==(const StepPlace&) const = default;
};

// The place of each step; steps keep their order. Every slot has one writer at
// most. With one member there are no barriers to save, and each step is a stage
// of its own.
std::vector<StepPlace> PlanStages(
    const std::vector<std::unique_ptr<Step>>& steps, int num_members);

}  // namespace millrace::models::graph
