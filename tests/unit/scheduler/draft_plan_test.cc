#include "scheduler/draft_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace millrace::scheduler {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

StepCost CostOf(double step_seconds, double row_seconds) {
  StepCost cost;
  for (int i = 0; i < 300; ++i) {
    for (const int32_t rows : {1, 2, 5, 20, 100}) {
      cost.Observe(ShapeOfRows(0, rows, rows),
                   step_seconds + row_seconds * static_cast<double>(rows));
    }
  }
  return cost;
}

std::vector<int32_t> Plan(const std::vector<DraftCandidate>& candidates,
                          const StepCost& model, const StepCost& draft) {
  StepShape decodes;
  for (size_t i = 0; i < candidates.size(); ++i) {
    decodes += ShapeOfRows(50, 1, 1);
  }
  return PlanDrafts(candidates, decodes, {model, draft});
}

DraftCandidate Usual(double rate) {
  return {.rate = rate,
          .num_tokens = 50,
          .max_tokens = 5,
          .num_lacking = 2,
          .num_left = 100};
}

TEST(DraftPlan, ACheapDraftModelThatIsRightDraftsFar) {
  const StepCost model = CostOf(10e-3, 1e-4);
  EXPECT_THAT(Plan({Usual(0.95)}, model, CostOf(1e-3, 1e-5)), ElementsAre(5));
  // 1 + 0.3 tokens for 11.1 ms pays, 0.09 more for another 1.1 ms does not.
  EXPECT_THAT(Plan({Usual(0.3)}, model, CostOf(1e-3, 1e-5)), ElementsAre(1));
  EXPECT_THAT(Plan({Usual(0.1)}, model, CostOf(1e-3, 1e-5)), ElementsAre(0));
}

TEST(DraftPlan, AModelIsNoDraftOfItself) {
  const StepCost cost = CostOf(10e-3, 1e-4);
  EXPECT_THAT(Plan({Usual(1.0)}, cost, cost), ElementsAre(0));
}

TEST(DraftPlan, AFullBatchThatComputesDraftsNothing) {
  // 64 rows of a millisecond: five checked rows a token are five times as dear.
  const std::vector<DraftCandidate> many(64, Usual(0.6));
  EXPECT_THAT(Plan(many, CostOf(2e-3, 1e-3), CostOf(1e-3, 1e-4)), Each(0));
  EXPECT_THAT(Plan({Usual(0.9)}, CostOf(2e-2, 1e-3), CostOf(1e-3, 1e-4)),
              ElementsAre(5));
}

TEST(DraftPlan, LevelsPayForManySoonerThanForOne) {
  const StepCost model = CostOf(10e-3, 1e-5);
  const StepCost draft = CostOf(6e-3, 1e-5);
  EXPECT_THAT(Plan({Usual(0.6)}, model, draft), ElementsAre(0));
  // Beside sure ones the others draft for next to nothing.
  const auto plan =
      Plan({Usual(0.99), Usual(0.99), Usual(0.99), Usual(0.4)}, model, draft);
  EXPECT_GE(plan[0], 2);
  EXPECT_GE(plan[3], 1);
}

TEST(DraftPlan, PromptsAreReadOnlyWhereTheAnswerIsLongEnough) {
  const StepCost model = CostOf(10e-3, 1e-4);
  const StepCost draft = CostOf(1e-3, 1e-4);
  DraftCandidate candidate = Usual(0.9);
  candidate.num_tokens = candidate.num_lacking = 4000;  // 400 ms
  candidate.num_left = 20;
  EXPECT_THAT(Plan({candidate}, model, draft), ElementsAre(0));
  candidate.num_left = 400;
  EXPECT_THAT(Plan({candidate}, model, draft), ElementsAre(5));
}

}  // namespace
}  // namespace millrace::scheduler
