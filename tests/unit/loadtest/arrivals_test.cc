#include "loadtest/arrivals.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <vector>

namespace millrace::loadtest {
namespace {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;

std::vector<nanoseconds> Take(const ArrivalSpec& spec, int count) {
  Arrivals arrivals(spec);
  std::vector<nanoseconds> out;
  for (int i = 0; i < count; ++i) {
    const auto next = arrivals.Next();
    if (!next) break;
    out.push_back(*next);
  }
  return out;
}

TEST(Arrivals, ConstantOnesAreEvenlySpaced) {
  const auto due = Take({.kind = ArrivalKind::kConstant, .rate = 8}, 4);
  EXPECT_EQ(due, (std::vector<nanoseconds>{0ms, 125ms, 250ms, 375ms}));
}

TEST(Arrivals, ConstantOnesDoNotDriftOverALongRun) {
  Arrivals arrivals({.kind = ArrivalKind::kConstant, .rate = 3});
  for (int i = 0; i < 30'000; ++i) arrivals.Next();
  EXPECT_EQ(*arrivals.Next(), nanoseconds(10'000s));
}

TEST(Arrivals, BurstsKeepTheMeanRate) {
  const auto due =
      Take({.kind = ArrivalKind::kBurst, .rate = 10, .burst_size = 3}, 7);
  EXPECT_EQ(due, (std::vector<nanoseconds>{0ms, 0ms, 0ms, 300ms, 300ms, 300ms,
                                           600ms}));
}

TEST(Arrivals, PoissonGapsHaveTheMeanAndSpreadOfAnExponential) {
  const auto due =
      Take({.kind = ArrivalKind::kPoisson, .rate = 50, .seed = 3}, 20'000);
  double sum = 0;
  double squares = 0;
  for (size_t i = 1; i < due.size(); ++i) {
    const double gap =
        std::chrono::duration<double>(due[i] - due[i - 1]).count();
    ASSERT_GE(gap, 0);
    sum += gap;
    squares += gap * gap;
  }
  const auto count = static_cast<double>(due.size() - 1);
  const double mean = sum / count;
  const double deviation = std::sqrt(squares / count - mean * mean);
  // The standard error of both over 20,000 gaps is below 1.1 %.
  EXPECT_NEAR(mean, 0.02, 0.02 * 0.04);
  EXPECT_NEAR(deviation, 0.02, 0.02 * 0.06);
}

TEST(Arrivals, TheSeedDecides) {
  const ArrivalSpec spec = {
      .kind = ArrivalKind::kPoisson, .rate = 5, .seed = 1};
  ArrivalSpec other = spec;
  other.seed = 2;
  EXPECT_EQ(Take(spec, 10), Take(spec, 10));
  EXPECT_NE(Take(spec, 10), Take(other, 10));
}

TEST(Arrivals, ATraceEnds) {
  const auto due =
      Take({.kind = ArrivalKind::kTrace, .trace = {0ms, 10ms, 10ms}}, 9);
  EXPECT_EQ(due, (std::vector<nanoseconds>{0ms, 10ms, 10ms}));
}

}  // namespace
}  // namespace millrace::loadtest
