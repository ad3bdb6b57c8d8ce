#include "config/base/gate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace millrace {
namespace {

using std::chrono::steady_clock;

TEST(Gate, CountsPassesInFlight) {
  Gate gate;
  Gate::Pass a = gate.Enter();
  {
    const Gate::Pass b = gate.Enter();
    EXPECT_TRUE(b);
    EXPECT_EQ(gate.in_flight(), 2);
  }
  EXPECT_EQ(gate.in_flight(), 1);
  a = Gate::Pass();
  EXPECT_EQ(gate.in_flight(), 0);
}

TEST(Gate, ClosedGateLetsNobodyIn) {
  Gate gate;
  const Gate::Pass before = gate.Enter();
  gate.Close();
  EXPECT_TRUE(gate.closed());
  EXPECT_FALSE(gate.Enter());
  EXPECT_EQ(gate.in_flight(), 1);
}

TEST(Gate, MovedPassLeavesOnce) {
  Gate gate;
  Gate::Pass a = gate.Enter();
  Gate::Pass b = std::move(a);
  EXPECT_FALSE(a);  // NOLINT: the moved-from state is the promise
  Gate::Pass& same = b;
  b = std::move(same);
  EXPECT_EQ(gate.in_flight(), 1);
  a = std::move(b);
  EXPECT_EQ(gate.in_flight(), 1);
}

TEST(Gate, WaitEmptySaysWhenTheTimeRanOut) {
  Gate gate;
  const Gate::Pass pass = gate.Enter();
  EXPECT_FALSE(gate.WaitEmpty(steady_clock::now()));
}

TEST(Gate, WaitEmptyReturnsWhenTheLastPassLeaves) {
  Gate gate;
  std::atomic<int> left{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, pass = gate.Enter()]() mutable {
      left.fetch_add(1);
      pass = Gate::Pass();
    });
  }
  gate.Close();
  EXPECT_TRUE(gate.WaitEmpty(steady_clock::now() + std::chrono::seconds(60)));
  EXPECT_EQ(left.load(), 4);
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace millrace
