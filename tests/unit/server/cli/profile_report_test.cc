// A profile of two steps, by hand.
#include "server/cli/profile_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

namespace millrace::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Profile TwoSteps() {
  Profile profile;
  profile.steps = {{{.text = "Softmax", .name = "encoder/3", .bytes = 4e6}, 1},
                   {{.text = "Linear \"a\"", .macs = 6e9, .sources = {0}}, 3}};
  profile.waiting_ms = 0.75;
  profile.overhead_ms = 0.25;
  profile.run_ms = 5;
  profile.num_runs = 20;
  profile.roofline = {.macs_per_s = 4e12, .read_bytes_per_s = 16e9};
  return profile;
}

TEST(ProfileReport, TheLongestStepIsFirstWithWhatLimitsIt) {
  const std::string table = ProfileTable(TwoSteps(), 0);
  // 6 GMAC in 3 ms: 4,000 GFLOP/s of 8,000; 4 MB in 1 ms: 4 GB/s of 16.
  EXPECT_THAT(table, HasSubstr("   3.0000  60.0%    4000.0      0.0  50% f32"));
  EXPECT_THAT(table, HasSubstr("4.0  25% DRAM       Softmax"));
  EXPECT_THAT(table, HasSubstr("encoder/3\n"));
  EXPECT_LT(table.find("Linear"), table.find("Softmax"));
}

// All that a run is made of stands in lines of its own.
TEST(ProfileReport, TheLinesAddUpToTheRun) {
  for (const int64_t top : {0, 1}) {
    const std::string table = ProfileTable(TwoSteps(), top);
    double sum = 0;
    double run = 0;
    std::istringstream lines(table);
    for (std::string line; std::getline(lines, line);) {
      double ms = 0;
      double percent = 0;
      char sign = 0;
      if (std::sscanf(line.c_str(), "%lf %lf%c", &ms, &percent, &sign) != 3) {
        continue;
      }
      if (line.find("the run") != line.npos) {
        run = ms;
      } else {
        sum += ms;
      }
    }
    EXPECT_DOUBLE_EQ(run, 5) << table;
    EXPECT_DOUBLE_EQ(sum, run) << table;
  }
}

TEST(ProfileReport, TopCutsRowsButNotTheirTime) {
  const std::string table = ProfileTable(TwoSteps(), 1);
  EXPECT_THAT(table, Not(HasSubstr("Softmax")));
  EXPECT_THAT(table, HasSubstr("1 shorter steps (--top 0 shows all)"));
}

TEST(ProfileReport, OnANarrowTerminalNoLineIsLongerThanIt) {
  Profile profile = TwoSteps();
  profile.num_members = 2;
  profile.steps[0].ms = 0.1;  // beyond its ceiling
  profile.steps[0].info.name = std::string(200, 'x') + "/conv3";
  profile.steps[1].info.text = std::string(200, 'y');
  std::istringstream lines(ProfileTable(profile, 0, 80));
  size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    EXPECT_LE(line.size(), 80) << line;
  }
  EXPECT_GT(count, 8);
  EXPECT_THAT(ProfileTable(profile, 0, 80), HasSubstr("xx/conv3\n"));
  EXPECT_THAT(ProfileTable(TwoSteps(), 0, 120),
              HasSubstr("Softmax     encoder/3\n"));
}

TEST(ProfileReport, AShareBeyondTheCeilingIsExplained) {
  Profile profile = TwoSteps();
  EXPECT_THAT(ProfileTable(profile, 0), Not(HasSubstr(">100%")));
  profile.steps[0].ms = 0.1;  // 4 MB: 40 GB/s of 16
  const std::string table = ProfileTable(profile, 0);
  EXPECT_THAT(table, HasSubstr(">100% DRAM"));
  EXPECT_THAT(table, HasSubstr("nearer cache"));
  EXPECT_THAT(table, Not(HasSubstr("250%")));
}

// Each kind of product has a peak of its own, and what fits into L2 is held
// against reading there: no share may be above what is possible.
TEST(ProfileReport, StepsAreHeldAgainstThePeakOfTheirKind) {
  using models::graph::Factors;
  const models::graph::TeamRoofline roofline = {.macs_per_s = 1e9,
                                                .bf16_macs_per_s = 4e9,
                                                .int8_macs_per_s = 8e9,
                                                .read_bytes_per_s = 10,
                                                .cache_bytes_per_s = 50,
                                                .cache_bytes = 100};
  EXPECT_DOUBLE_EQ(roofline.MacSeconds({.macs = 8e9}), 8);
  EXPECT_DOUBLE_EQ(
      roofline.MacSeconds({.macs = 8e9, .factors = Factors::kBf16}), 2);
  EXPECT_DOUBLE_EQ(
      roofline.MacSeconds({.macs = 8e9, .factors = Factors::kInt8}), 1);
  EXPECT_DOUBLE_EQ(roofline.ByteSeconds({.bytes = 50}), 1);
  EXPECT_DOUBLE_EQ(roofline.ByteSeconds({.bytes = 150}), 2 + 5);
  EXPECT_STREQ(roofline.ByteCeiling({.bytes = 50}), "L2");
  EXPECT_STREQ(roofline.ByteCeiling({.bytes = 150}), "DRAM");
}

// Weights that do not fit into L2 all together are read from memory, however
// small those of one step are.
TEST(ProfileReport, WeightsStayInL2OnlyIfAllOfThemFit) {
  models::graph::TeamRoofline roofline = {.read_bytes_per_s = 10,
                                          .cache_bytes_per_s = 50,
                                          .cache_bytes = 100,
                                          .weight_bytes = 1000,
                                          .memory_name = "L3"};
  const models::graph::StepInfo step = {.bytes = 50, .constant_bytes = 40};
  EXPECT_DOUBLE_EQ(roofline.ByteSeconds(step), 0.2 + 4);
  EXPECT_STREQ(roofline.ByteCeiling(step), "L3");
  roofline.weight_bytes = 90;
  EXPECT_DOUBLE_EQ(roofline.ByteSeconds(step), 1);
}

models::graph::Trace TwoMembers() {
  models::graph::Trace trace;
  trace.steps = {{.text = "a"}, {.text = "b"}};
  trace.spans = {{{100, 400}, {500, 900}}, {{150, 700}, {0, 0}}};
  trace.run_ns = 1000;
  return trace;
}

// Member 0: a 100-400, b 500-900. Member 1: a 150-700. From 500 to 700 they run
// different steps, which share that time.
TEST(ProfileReport, StepsWaitingAndOverheadAreTheRun) {
  const RunTimes times = TimesOf(TwoMembers(), 2000e-6);
  EXPECT_DOUBLE_EQ(times.step_ms[0], (400 + 100) * 1e-6);
  EXPECT_DOUBLE_EQ(times.step_ms[1], (200 + 100) * 1e-6);
  EXPECT_DOUBLE_EQ(times.waiting_ms, 0);
  EXPECT_DOUBLE_EQ(times.overhead_ms, 1200e-6);
  // One of two members: 100-150, 400-500, 700-900.
  EXPECT_DOUBLE_EQ(times.idle_ms, 350e-6 / 2);
}

TEST(ProfileReport, TimeInWhichNoMemberRunsAStepIsWaiting) {
  models::graph::Trace trace = TwoMembers();
  trace.spans[1][0] = {150, 350};
  const RunTimes times = TimesOf(trace, 1000e-6);
  EXPECT_DOUBLE_EQ(times.step_ms[0], 300e-6);
  EXPECT_DOUBLE_EQ(times.step_ms[1], 400e-6);
  EXPECT_DOUBLE_EQ(times.waiting_ms, 100e-6);
  EXPECT_DOUBLE_EQ(times.overhead_ms, 200e-6);
}

TEST(ProfileReport, SlowRunsAreLeftOutOfTheMean) {
  const auto run = [](double ms) {
    return RunTimes{.step_ms = {ms / 2}, .waiting_ms = ms / 2, .run_ms = ms};
  };
  const RunTimes mean = MeanOfQuickest({run(100), run(2), run(40), run(4)});
  EXPECT_DOUBLE_EQ(mean.run_ms, 3);
  EXPECT_DOUBLE_EQ(mean.step_ms[0], 1.5);
  EXPECT_DOUBLE_EQ(mean.waiting_ms, 1.5);
  EXPECT_DOUBLE_EQ(MeanOfQuickest({run(7)}).run_ms, 7);
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

}  // namespace
}  // namespace millrace::server
