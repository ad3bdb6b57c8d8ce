#include "handlers/pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <thread>
#include <vector>

namespace millrace::handlers {
namespace {

TEST(Pool, RunsTasksOfOneThreadInOrder) {
  std::vector<int> order;
  {
    Pool pool(1, 100, {});
    for (int i = 0; i < 10; ++i) {
      ASSERT_TRUE(pool.TryPost([&order, i] { order.push_back(i); }));
    }
  }
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST(Pool, TryPostRefusesWhenFullAndContinueDoesNot) {
  std::latch running(1), release(1);
  std::atomic<int> ran{0};
  {
    Pool pool(1, 2, {});
    ASSERT_TRUE(pool.TryPost([&] {
      running.count_down();
      release.wait();
    }));
    running.wait();  // the thread is busy, the queue empty
    EXPECT_TRUE(pool.TryPost([&] { ++ran; }));
    EXPECT_TRUE(pool.TryPost([&] { ++ran; }));
    EXPECT_FALSE(pool.TryPost([&] { ++ran; }));
    pool.Continue([&] { ++ran; });
    release.count_down();
  }
  EXPECT_EQ(ran, 3);
}

TEST(Pool, DestructorRunsWhatIsQueuedAndWhatThatOwes) {
  std::atomic<int> ran{0};
  {
    Pool pool(2, 1000, {});
    for (int i = 0; i < 100; ++i) {
      pool.Continue([&] {
        ++ran;
        pool.Continue([&] { ++ran; });
      });
    }
  }
  EXPECT_EQ(ran, 200);
}

TEST(Pool, ATaskThatThrowsEndsAloneAndOthersRun) {
  std::atomic<int> ran{0};
  {
    Pool pool(1, 10, {});
    pool.Continue([] { throw std::bad_alloc(); });
    pool.Continue([&] { ++ran; });
  }
  EXPECT_EQ(ran, 1);
}

TEST(Pool, ManyThreadsPostAtOnce) {
  std::atomic<int> ran{0};
  std::atomic<int> refused{0};
  {
    Pool pool(3, 16, {});
    std::vector<std::thread> posters;
    for (int t = 0; t < 4; ++t) {
      posters.emplace_back([&] {
        for (int i = 0; i < 500; ++i) {
          if (!pool.TryPost([&] { ++ran; })) ++refused;
        }
      });
    }
    for (auto& poster : posters) poster.join();
  }
  EXPECT_EQ(ran + refused, 2000);
}

}  // namespace
}  // namespace millrace::handlers
