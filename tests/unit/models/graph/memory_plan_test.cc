#include "models/graph/plan/memory_plan.h"

#include <gtest/gtest.h>

#include <random>

namespace millrace::models::graph {
namespace {

TEST(MemoryPlan, ReusesTheBytesOfWhatIsDead) {
  const MemoryPlan plan = PlanMemory({{128, 0, 1}, {64, 1, 3}, {100, 2, 3}});
  EXPECT_EQ(plan.offsets, (std::vector<int64_t>{0, 128, 0}));
  EXPECT_EQ(plan.bytes, 192);
}

TEST(MemoryPlan, NeverLetsTwoLivingValuesOverlap) {
  std::mt19937 random(7);
  std::vector<Lifetime> lives;
  for (int i = 0; i < 300; ++i) {
    const auto first = static_cast<int32_t>(random() % 100);
    lives.push_back({static_cast<int64_t>(random() % 5000), first,
                     first + static_cast<int32_t>(random() % 20)});
  }
  const MemoryPlan plan = PlanMemory(lives);
  for (size_t a = 0; a < lives.size(); ++a) {
    EXPECT_EQ(plan.offsets[a] % 64, 0);
    EXPECT_LE(plan.offsets[a] + lives[a].bytes, plan.bytes);
    for (size_t b = 0; b < a; ++b) {
      if (lives[a].first > lives[b].last || lives[b].first > lives[a].last) {
        continue;
      }
      EXPECT_TRUE(plan.offsets[a] + lives[a].bytes <= plan.offsets[b] ||
                  plan.offsets[b] + lives[b].bytes <= plan.offsets[a]);
    }
  }
}

}  // namespace
}  // namespace millrace::models::graph
