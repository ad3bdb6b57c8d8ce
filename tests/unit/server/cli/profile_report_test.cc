// A profile of two steps, by hand.
#include "server/cli/profile_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace millrace::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Profile TwoSteps() {
  Profile profile;
  profile.steps = {
      {{.text = "Softmax", .bytes = 4e6}, 1.0},
      {{.text = "Linear \"a\"", .macs = 6e9, .sources = {0}}, 3.0}};
  profile.run_ms = 5;
  profile.peaks = {.macs_per_s = 4e12, .read_bytes_per_s = 16e9};
  return profile;
}

TEST(ProfileReport, TheLongestStepIsFirstWithItsSharesOfThePeaks) {
  const std::string table = ProfileTable(TwoSteps(), 0);
  // 6 GMAC in 3 ms: 4,000 GFLOP/s of 8,000; 4 MB in 1 ms: 4 GB/s of 16.
  EXPECT_THAT(table, HasSubstr("   3.0000  60.0%    4000.0  50.0%"));
  EXPECT_THAT(table, HasSubstr("4.0  25.0%  Softmax"));
  EXPECT_LT(table.find("Linear"), table.find("Softmax"));
  EXPECT_THAT(table, HasSubstr("   4.0000  80.0%    2400.0  30.0%"));
  EXPECT_THAT(table, HasSubstr("all 2 steps"));
}

TEST(ProfileReport, TopCutsRowsButNotTheSums) {
  const std::string table = ProfileTable(TwoSteps(), 1);
  EXPECT_THAT(table, Not(HasSubstr("Softmax")));
  EXPECT_THAT(table, HasSubstr("all 2 steps"));
}

// Each kind of product has a peak of its own, and what fits into L2 is held
// against reading there: no share may be above what is possible.
TEST(ProfileReport, StepsAreHeldAgainstThePeakOfTheirKind) {
  using models::graph::Factors;
  const models::graph::TeamPeaks peaks = {.macs_per_s = 1e9,
                                          .bf16_macs_per_s = 4e9,
                                          .int8_macs_per_s = 8e9,
                                          .read_bytes_per_s = 10,
                                          .cache_bytes_per_s = 50,
                                          .cache_bytes = 100};
  EXPECT_DOUBLE_EQ(peaks.MacSeconds({.macs = 8e9}), 8);
  EXPECT_DOUBLE_EQ(peaks.MacSeconds({.macs = 8e9, .factors = Factors::kBf16}),
                   2);
  EXPECT_DOUBLE_EQ(peaks.MacSeconds({.macs = 8e9, .factors = Factors::kInt8}),
                   1);
  EXPECT_DOUBLE_EQ(peaks.ByteSeconds({.bytes = 50}), 1);
  EXPECT_DOUBLE_EQ(peaks.ByteSeconds({.bytes = 150}), 2 + 5);
}

models::graph::Trace TwoMembers() {
  models::graph::Trace trace;
  trace.steps = {{.text = "a"}, {.text = "b"}};
  trace.spans = {{{100, 400}, {500, 900}}, {{150, 700}, {0, 0}}};
  trace.run_ns = 1000;
  return trace;
}

TEST(ProfileReport, AStepLastsAsLongAsItsSlowestMember) {
  EXPECT_DOUBLE_EQ(StepMs(TwoMembers(), 0), 550e-6);
  EXPECT_DOUBLE_EQ(StepMs(TwoMembers(), 1), 400e-6);
}

TEST(ProfileReport, TheTimelineHasAnEventForEachMemberThatWasCalled) {
  const auto events =
      nlohmann::json::parse(TimelineJson(TwoMembers()))["traceEvents"];
  ASSERT_EQ(events.size(), 3);
  EXPECT_EQ(events[2]["name"], "a");
  EXPECT_EQ(events[2]["tid"], 1);
  EXPECT_EQ(events[2]["ph"], "X");
  EXPECT_DOUBLE_EQ(events[2]["ts"], 0.15);  // microseconds
  EXPECT_DOUBLE_EQ(events[2]["dur"], 0.55);
}

TEST(ProfileReport, ThePictureHasABoxForEachStepAndItsEdges) {
  const std::string dot = PictureDot(TwoSteps());
  EXPECT_THAT(dot, HasSubstr("s0 [label=\"Softmax\\n1.000 ms\""));
  EXPECT_THAT(dot, HasSubstr("s1 [label=\"Linear \\\"a\\\"\\n3.000 ms\""));
  EXPECT_THAT(dot, HasSubstr("s0 ->  s1;"));
}

}  // namespace
}  // namespace millrace::server
