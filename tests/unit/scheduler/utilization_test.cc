#include "scheduler/utilization.h"

#include <gtest/gtest.h>

#include <cmath>

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

// A noisy neighbour while the peaks were measured, or keys and values that stay
// in a nearer cache.
TEST(Utilization, AStepBeyondAPeakRaisesIt) {
  Utilization u(
      {.read_bytes_per_s = 100, .macs_per_s = 100, .prompt_macs_per_s = 1000});
  EXPECT_FALSE(u.Add(Step(50, 50), 1));
  EXPECT_TRUE(u.Add(Step(200, 400), 1));
  EXPECT_EQ(u.roofline().read_bytes_per_s, 200);
  EXPECT_EQ(u.roofline().macs_per_s, 400);
  EXPECT_EQ(u.roofline().prompt_macs_per_s, 4000);
  const double keep = std::exp(-1.0 / 5);
  EXPECT_NEAR(u.bandwidth(), (50 * keep + 200) / (200 * (keep + 1)), 1e-9);
  EXPECT_NEAR(u.compute(), (50 * keep + 400) / (400 * (keep + 1)), 1e-9);
  for (int i = 1; i < 200; ++i) {
    u.Add(Step(37.0 * i, 11.0 * i), 0.01 * i);
    EXPECT_LE(u.bandwidth(), 1);
    EXPECT_LE(u.compute(), 1);
  }
  EXPECT_FALSE(u.Add(Step(5, 5), 0));
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
