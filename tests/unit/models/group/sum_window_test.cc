// Ranks are threads here: the memory is shared all the same.
#include "models/group/mpi/sum_window.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "models/group/local_group.h"

namespace millrace::models::mpi {
namespace {

using std::chrono::milliseconds;

float Value(int round, int rank, size_t i) {
  return (static_cast<float>(i) + 0.1f) * static_cast<float>(rank + 1) /
         static_cast<float>(round + 3);
}

void SumAsRank(Group& group, size_t count) {
  const auto window = SumWindow::Make(group, count);
  ASSERT_NE(window, nullptr);
  ASSERT_EQ(window->own().size(), count);
  for (int round = 0; round < 50; ++round) {
    for (size_t i = 0; i < count; ++i) {
      window->own()[i] = Value(round, group.rank(), i);
    }
    const size_t begin = static_cast<size_t>(round) % 3;
    const size_t n = count - begin - 1;
    ASSERT_FALSE(window->Sum(begin, n, Wait(milliseconds(60'000))));
    for (size_t i = 0; i < count; ++i) {
      float expected = Value(round, group.rank(), i);
      if (i >= begin && i < begin + n) {
        expected = Value(round, 0, i);
        for (int rank = 1; rank < group.size(); ++rank) {
          expected += Value(round, rank, i);
        }
      }
      ASSERT_EQ(window->own()[i], expected) << i;  // to the bit
    }
  }
}

void RunRanks(int32_t size, void (*as_rank)(Group&, size_t), size_t count) {
  auto ranks = MakeLocalGroup(size);
  std::vector<std::thread> threads;
  for (auto& rank : ranks) {
    threads.emplace_back([&] { as_rank(*rank, count); });
  }
  for (auto& thread : threads) thread.join();
}

TEST(SumWindow, SumsHaveTheBitsOfTheOrderOfRanks) {
  RunRanks(2, SumAsRank, 4099);
  RunRanks(3, SumAsRank, 10);
  RunRanks(4, SumAsRank, 5);  // some ranks have nothing to sum
}

TEST(SumWindow, WithoutMemoryNoRankHasAWindow) {
  RunRanks(
      3,
      [](Group& group, size_t count) {
        EXPECT_EQ(SumWindow::Make(group, count), nullptr);
        std::vector<float> values(1, 1);  // the group is as it was
        EXPECT_TRUE(group.AllReduceSum(values).ok());
        EXPECT_EQ(values[0], 3);
      },
      size_t{1} << 45);
}

TEST(SumWindow, ARankThatDoesNotComeIsNamed) {
  RunRanks(
      2,
      [](Group& group, size_t count) {
        const auto window = SumWindow::Make(group, count);
        ASSERT_NE(window, nullptr);
        if (group.rank() == 1) return;
        EXPECT_EQ(window->Sum(0, count, Wait(milliseconds(30))), 1);
      },
      8);
}

}  // namespace
}  // namespace millrace::models::mpi
