#include "scheduler/step_cost.h"

#include <gtest/gtest.h>

#include <random>

#include "scheduler/step_budget.h"

namespace millrace::scheduler {
namespace {

// A machine with known prices: the oracle.
struct Machine {
  double step = 2e-3, row = 3e-4, sample = 1e-4, key = 1e-8;
  double Seconds(const StepShape& shape) const {
    return step + row * static_cast<double>(shape.rows) +
           sample * static_cast<double>(shape.samples) +
           key * static_cast<double>(shape.attended);
  }
};

TEST(StepCost, RowsAttendToWhatIsBeforeThemAndToThemselves) {
  const StepShape shape = ShapeOfRows(10, 3, 1);  // 11 + 12 + 13 keys
  EXPECT_EQ(shape.rows, 3);
  EXPECT_EQ(shape.samples, 1);
  EXPECT_EQ(shape.attended, 36);
}

TEST(StepCost, LearnsThePricesOfAMachineThroughNoise) {
  const Machine machine;
  StepCost cost;
  EXPECT_FALSE(cost.known());
  std::mt19937 random(1);
  std::uniform_real_distribution<double> noise(0.95, 1.05);
  const auto run = [&](const StepShape& shape) {
    // One step in twenty is held up by somebody else.
    const double held_up = random() % 20 == 0 ? 5 : 1;
    cost.Observe(shape, machine.Seconds(shape) * noise(random) * held_up);
  };
  for (int i = 0; i < 300; ++i) {
    if (i % 10 == 0) run(ShapeOfRows(0, 300, 1));
    StepShape decodes;
    for (uint32_t k = 0; k <= random() % 16; ++k) {
      decodes += ShapeOfRows(static_cast<int32_t>(random() % 2000), 1, 1);
    }
    run(decodes);
  }
  EXPECT_TRUE(cost.known());
  const StepCost::Prices prices = cost.prices();
  const StepShape some = ShapeOfRows(100, 9, 4);
  EXPECT_NEAR(prices.step + 9 * prices.row + 4 * prices.sample +
                  static_cast<double>(some.attended) * prices.key,
              cost.Seconds(some), 1e-12);
  for (const StepShape& shape :
       {ShapeOfRows(500, 1, 1), ShapeOfRows(0, 300, 1), ShapeOfRows(100, 9, 9),
        ShapeOfRows(0, 500, 1)}) {
    EXPECT_NEAR(cost.Seconds(shape), machine.Seconds(shape),
                0.35 * machine.Seconds(shape));
  }
}

TEST(StepCost, FollowsAMachineThatBecomesSlower) {
  Machine machine;
  StepCost cost;
  for (int i = 0; i < 50; ++i) {
    cost.Observe(ShapeOfRows(100, 1, 1),
                 machine.Seconds(ShapeOfRows(100, 1, 1)));
  }
  machine.step *= 3;
  const StepShape shape = ShapeOfRows(100, 1, 1);
  for (int i = 0; i < 100; ++i) cost.Observe(shape, machine.Seconds(shape));
  EXPECT_NEAR(cost.Seconds(shape), machine.Seconds(shape),
              0.1 * machine.Seconds(shape));
}

StepCost Learnt(const Machine& machine) {
  StepCost cost;
  for (int i = 0; i < 100; ++i) {
    for (const StepShape& shape :
         {ShapeOfRows(100, 1, 1), ShapeOfRows(0, 200, 1),
          ShapeOfRows(0, 400, 0), ShapeOfRows(3000, 100, 1),
          ShapeOfRows(50, 8, 8)}) {
      cost.Observe(shape, machine.Seconds(shape));
    }
  }
  return cost;
}

SequenceView Decoding(int32_t num_tokens) {
  return {.running = true,
          .num_tokens = num_tokens,
          .num_computed = num_tokens - 1};
}
SequenceView Waiting(int32_t num_tokens) { return {.num_tokens = num_tokens}; }

TEST(StepBudget, PromptRowsFillTheTimeThatDecodesLeave) {
  const Machine machine;
  const StepCost cost = Learnt(machine);
  const std::vector<SequenceView> views = {Decoding(500), Decoding(700),
                                           Waiting(2000)};
  const int32_t rows = MostPromptRows(views, cost, 0.050);
  const StepShape decodes = ShapeOfDecodes(views);
  EXPECT_EQ(decodes.samples, 2);
  StepShape step = decodes;
  step += ShapeOfRows(0, rows, 0);
  EXPECT_NEAR(machine.Seconds(step), 0.050, 0.005);
}

TEST(StepBudget, DeepRowsCostMore) {
  const StepCost cost = Learnt({.key = 1e-7});
  SequenceView deep = Waiting(7000);
  deep.running = true;
  deep.num_computed = 6000;
  const int32_t shallow_rows =
      MostPromptRows(std::vector{Decoding(10), Waiting(1000)}, cost, 0.05);
  const int32_t deep_rows =
      MostPromptRows(std::vector{Decoding(10), deep}, cost, 0.05);
  EXPECT_LT(deep_rows, shallow_rows / 2);
}

TEST(StepBudget, PromptsGoOnWhateverTheTarget) {
  const StepCost cost = Learnt({});
  EXPECT_EQ(MostPromptRows(std::vector{Decoding(10), Waiting(900)}, cost, 1e-6),
            kLeastPromptRows);
  // Short prompts one after the other fit as one long one does.
  EXPECT_GE(MostPromptRows(std::vector{Decoding(10), Waiting(30), Waiting(30)},
                           cost, 0.05),
            60);
}

}  // namespace
}  // namespace millrace::scheduler
