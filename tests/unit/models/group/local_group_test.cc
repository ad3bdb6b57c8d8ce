#include "models/group/local_group.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>

namespace millrace::models {
namespace {

// Runs the body as every rank of a group.
void AsRanks(int32_t size, const std::function<void(Group&)>& body) {
  auto ranks = MakeLocalGroup(size);
  std::vector<std::thread> threads;
  for (auto& rank : ranks) {
    threads.emplace_back([&body, own = std::move(rank)] { body(*own); });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(LocalGroup, SumsInTheOrderOfRanks) {
  // In f32 the order shows: 1e8 + 1 - 1e8 is 0, 1e8 - 1e8 + 1 is 1.
  const float of_rank[3][2] = {{1e8f, 1e8f}, {1, -1e8f}, {-1e8f, 1}};
  AsRanks(3, [&](Group& group) {
    for (int i = 0; i < 100; ++i) {
      std::vector<float> values(of_rank[group.rank()],
                                of_rank[group.rank()] + 2);
      ASSERT_TRUE(group.AllReduceSum(values).ok());
      EXPECT_EQ(values, (std::vector<float>{0, 1}));
    }
  });
}

TEST(LocalGroup, BytesOfRankZeroBecomeEverybodys) {
  AsRanks(4, [](Group& group) {
    std::vector<std::byte> bytes(3, static_cast<std::byte>(group.rank() + 7));
    ASSERT_TRUE(group.Broadcast(bytes, Patience::kIdle).ok());
    EXPECT_EQ(bytes, std::vector<std::byte>(3, std::byte{7}));
  });
}

TEST(LocalGroup, GathersInTheOrderOfRanks) {
  AsRanks(3, [](Group& group) {
    const auto rank = static_cast<float>(group.rank());
    const std::vector<float> own = {rank, -rank};
    std::vector<float> all(6);
    ASSERT_TRUE(group.Gather(own, all).ok());
    EXPECT_EQ(all, group.rank() == 0 ? (std::vector<float>{0, 0, 1, -1, 2, -2})
                                     : std::vector<float>(6));
    std::vector<float> everywhere(6);
    ASSERT_TRUE(group
                    .AllGather(std::as_bytes(std::span(own)),
                               std::as_writable_bytes(std::span(everywhere)),
                               Patience::kStep)
                    .ok());
    EXPECT_EQ(everywhere, (std::vector<float>{0, 0, 1, -1, 2, -2}));
  });
}

TEST(LocalGroup, ARankThatLeavesEndsTheOthersCalls) {
  AsRanks(3, [](Group& group) {
    std::vector<float> values(5, 1);
    ASSERT_TRUE(group.AllReduceSum(values).ok());
    if (group.rank() == 1) return;
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(group.AllReduceSum(values).code(), StatusCode::kUnavailable);
    }
  });
}

}  // namespace
}  // namespace millrace::models
