#include "scheduler/ordered_endings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace millrace::scheduler {
namespace {

using ::testing::ElementsAre;

TEST(OrderedEndings, HoldsWhatCameEarlyUntilItsTurn) {
  OrderedEndings endings;
  std::vector<int> seen;
  endings.End(2, [&] { seen.push_back(2); });
  endings.End(1, [&] { seen.push_back(1); });
  EXPECT_TRUE(seen.empty());
  endings.End(0, [&] { seen.push_back(0); });
  EXPECT_THAT(seen, ElementsAre(0, 1, 2));
}

TEST(OrderedEndings, ThreadsGiveOneOrder) {
  OrderedEndings endings;
  constexpr int kThreads = 4;
  constexpr int kAll = 4000;
  std::vector<int> seen;
  std::atomic<bool> inside = false;  // endings never run two at a time
  std::atomic<int> num_ended = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = t; i < kAll; i += kThreads) {
        endings.End(i, [&, i] {
          EXPECT_FALSE(inside.exchange(true));
          std::this_thread::yield();
          seen.push_back(i);
          inside.store(false);
          num_ended.fetch_add(1);
        });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(num_ended.load(), kAll);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
}

}  // namespace
}  // namespace millrace::scheduler
