#include "scheduler/draft_lull.h"

#include <gtest/gtest.h>

namespace millrace::scheduler {
namespace {

TEST(DraftLull, RestsBehindStepsWithoutDraftTokensAndAsksAgain) {
  DraftLull lull;
  for (int step = 0; step < DraftLull::kStepsBefore; ++step) {
    EXPECT_FALSE(lull.Rests()) << step;
    lull.Asked(false);
  }
  for (int round = 0; round < 2; ++round) {
    for (int step = 0; step < DraftLull::kStepsWithout; ++step) {
      EXPECT_TRUE(lull.Rests()) << step;
      lull.Rested();
    }
    EXPECT_FALSE(lull.Rests());
    lull.Asked(false);  // one look that finds nothing is enough
  }
  EXPECT_TRUE(lull.Rests());
  lull.Asked(true);
  EXPECT_FALSE(lull.Rests());
}

}  // namespace
}  // namespace millrace::scheduler
