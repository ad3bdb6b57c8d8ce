#include "config/base/status.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "config/base/clock.h"
#include "config/base/trace.h"

namespace millrace {
namespace {

TEST(Status, OkHoldsNothing) {
  const Status ok;
  EXPECT_TRUE(ok.ok());
  EXPECT_EQ(ok.message(), "");
  EXPECT_EQ(ok.ToString(), "OK");
  EXPECT_TRUE(ok.At("x").Because("y").RetryAfterMs(1).Prefixed("z").ok());
}

TEST(Status, DetailsAreAddedToCopies) {
  const Status bare = ResourceExhausted("the queue is full");
  const Status full =
      bare.At("n").Because("queue_full").RetryAfterMs(250).Prefixed("chat");
  EXPECT_EQ(full.field(), "n");
  EXPECT_EQ(full.reason(), "queue_full");
  EXPECT_EQ(full.retry_after_ms(), 250);
  EXPECT_EQ(full.ToString(), "RESOURCE_EXHAUSTED: chat: the queue is full");
  EXPECT_EQ(bare.field(), "");
  EXPECT_EQ(bare.retry_after_ms(), 0);
}

StatusOr<int> Half(int n) {
  if (n % 2 != 0) return InvalidArgument("odd");
  return n / 2;
}

StatusOr<int> Quarter(int n) {
  ASSIGN_OR_RETURN(const int half, Half(n));
  RETURN_IF_ERROR(Half(half).status());
  return Half(half);
}

TEST(Status, MacrosPassFailuresOn) {
  EXPECT_EQ(*Quarter(8), 2);
  EXPECT_EQ(Quarter(6).status().message(), "odd");
  EXPECT_EQ(Quarter(7).status().code(), StatusCode::kInvalidArgument);
}

TEST(StatusDeathTest, ValueOfAFailureStops) {
  if (std::getenv("MILLRACE_TEST_EMULATED") != nullptr) {
    GTEST_SKIP() << "an emulated program cannot start itself once more";
  }
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH((void)Half(1).value(), "INVALID_ARGUMENT: odd");
}

TEST(Clock, FakeTimeMovesOnlyByHand) {
  FakeClock clock;
  const Clock::Time start = clock.Now();
  EXPECT_EQ(clock.Now(), start);
  clock.Advance(std::chrono::milliseconds(5));
  EXPECT_EQ(clock.Now() - start, std::chrono::milliseconds(5));
  const Clock::Time real = Clock::Real().Now();
  EXPECT_LE(real, Clock::Real().Now());
}

TEST(Trace, FirstStampStaysAndSpansNeedBoth) {
  FakeClock clock;
  Trace trace;
  trace.Stamp(Stage::kAccepted, clock.Now());
  clock.Advance(std::chrono::seconds(2));
  trace.Stamp(Stage::kAccepted, clock.Now());
  EXPECT_EQ(trace.Seconds(Stage::kAccepted, Stage::kEnded), -1.0);
  trace.Stamp(Stage::kEnded, clock.Now());
  EXPECT_DOUBLE_EQ(trace.Seconds(Stage::kAccepted, Stage::kEnded), 2.0);
}

}  // namespace
}  // namespace millrace
