#include "scheduler/utilization.h"

#include <gtest/gtest.h>

namespace millrace::scheduler {
namespace {

models::StepAccount Step(double bytes, double macs) {
  models::StepAccount step;
  step.weight_bytes = bytes / 4;
  step.kv_bytes = bytes - step.weight_bytes;
  step.macs = macs;
  return step;
}

TEST(Utilization, IsNothingBeforeTheFirstStepAndWithoutARoofline) {
  Utilization fresh({.read_bytes_per_s = 10, .macs_per_s = 10});
  EXPECT_EQ(fresh.bandwidth(), 0);
  EXPECT_EQ(fresh.compute(), 0);
  Utilization unknown({});
  unknown.Add(Step(5, 5), 1);
  EXPECT_EQ(unknown.bandwidth(), 0);
  EXPECT_EQ(unknown.compute(), 0);
}

TEST(Utilization, IsTheShareOfTheRooflineWhileStepsAreAlike) {
  Utilization u({.read_bytes_per_s = 100, .macs_per_s = 1000});
  for (int i = 0; i < 50; ++i) u.Add(Step(40, 100), 0.5);
  EXPECT_NEAR(u.bandwidth(), 0.8, 1e-9);  // 40 / (0.5 * 100)
  EXPECT_NEAR(u.compute(), 0.2, 1e-9);    // 100 / (0.5 * 1000)
}

TEST(Utilization, RowsOfPromptsHaveAPeakOfTheirOwn) {
  Utilization u({.macs_per_s = 100, .prompt_macs_per_s = 1000});
  models::StepAccount step = Step(0, 550);
  step.prompt_macs = 500;
  u.Add(step, 2);
  EXPECT_NEAR(u.compute(), 0.5, 1e-9);  // (50 / 100 + 500 / 1000) / 2
}

TEST(Utilization, ForgetsWithinTensOfSecondsOfSteps) {
  Utilization u({.read_bytes_per_s = 100, .macs_per_s = 100});
  for (int i = 0; i < 100; ++i) u.Add(Step(100, 0), 1);
  // After 20 seconds of other work the old share weighs e^-4 or less.
  for (int i = 0; i < 20; ++i) u.Add(Step(0, 100), 1);
  EXPECT_LT(u.bandwidth(), 0.02);
  EXPECT_GT(u.compute(), 0.98);
}

}  // namespace
}  // namespace millrace::scheduler
