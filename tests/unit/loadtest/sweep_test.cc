#include "loadtest/sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "loadtest/svg.h"

namespace millrace::loadtest {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST(Sweep, TheKneeIsWhereThroughputStopsToGrow) {
  EXPECT_EQ(FindKnee({1, 2, 4, 8, 16}, {10, 20, 39, 41, 42}), 2u);
  EXPECT_EQ(FindKnee({5, 10, 20, 40}, {5, 10, 19, 15}), 2u)
      << "throughput may fall beyond it";
}

TEST(Sweep, AStraightOrShortCurveHasNoKnee) {
  EXPECT_EQ(FindKnee({1, 2, 3, 4}, {10, 20, 30, 40}), std::nullopt);
  EXPECT_EQ(FindKnee({1, 2}, {10, 11}), std::nullopt);
  EXPECT_EQ(FindKnee({1, 2, 3}, {5, 5, 5}), std::nullopt);
  EXPECT_EQ(FindKnee({}, {}), std::nullopt);
}

SweepResult Sample() {
  SweepResult result;
  for (const int64_t concurrency : {1, 4, 8}) {
    Report report;
    report.model = "<m>";
    report.load.concurrency = concurrency;
    report.num_ok = 10;
    report.request_throughput = static_cast<double>(concurrency) * 2;
    report.objectives.push_back({(*ParseSlo("latency:p99:30ms"))[0], 9, true});
    Summary latency = {"request_latency_ms", "Request latency", "ms"};
    latency.p50 = 5;
    latency.p99 = 9;
    report.summaries.push_back(latency);
    result.steps.push_back(report);
  }
  result.steps[2].slo_met = false;
  result.knee = 1;
  result.best = 1;
  return result;
}

TEST(Sweep, TheTextNamesKneeAndHighestLoad) {
  const std::string text = SweepFooter(Sample());
  EXPECT_THAT(text, HasSubstr("Knee: concurrency 4, 8.00 requests/s"));
  EXPECT_THAT(text, HasSubstr("meets the SLO: concurrency 4"));
  SweepResult none = Sample();
  none.knee = none.best = std::nullopt;
  EXPECT_THAT(SweepFooter(none), HasSubstr("Knee: none"));
  EXPECT_THAT(SweepFooter(none), HasSubstr("No load met the SLO"));
}

TEST(Sweep, JsonAndCsvHoldEachStep) {
  const auto json = nlohmann::json::parse(SweepJson(Sample()));
  EXPECT_EQ(json["steps"].size(), 3u);
  EXPECT_EQ(json["knee"], 4);
  EXPECT_EQ(json["highest_meeting_slo"], 4);
  const std::string csv = SweepCsv(Sample());
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 4);
  EXPECT_THAT(csv, HasSubstr("\n8,16,0,0,0,0,0,0,5,9,0,0\n"));
}

TEST(Sweep, ThePageStandsAlone) {
  const std::string page = SweepHtml(Sample());
  EXPECT_THAT(page, HasSubstr("&lt;m&gt;"));
  EXPECT_THAT(page, HasSubstr("<svg"));
  for (const char* outside : {"<script", "<link", "src=", "<m>", "url("}) {
    EXPECT_THAT(page, Not(HasSubstr(outside)));
  }
}

TEST(Svg, TicksAreRoundAndCoverTheRange) {
  EXPECT_THAT(NiceTicks(0, 10), ElementsAre(0, 2, 4, 6, 8, 10));
  EXPECT_THAT(NiceTicks(0, 0.9), ElementsAre(0, testing::DoubleNear(0.2, 1e-9),
                                             testing::DoubleNear(0.4, 1e-9),
                                             testing::DoubleNear(0.6, 1e-9),
                                             testing::DoubleNear(0.8, 1e-9),
                                             testing::DoubleNear(1.0, 1e-9)));
  for (const double high : {1e-9, 0.3, 7.0, 123456.0, 4e12}) {
    const auto ticks = NiceTicks(0, high);
    EXPECT_GE(ticks.back(), high * (1 - 1e-9));
    EXPECT_GE(ticks.size(), 4u);
    EXPECT_LE(ticks.size(), 8u);
  }
}

TEST(Svg, EmptyAndSingleValuesAreDrawn) {
  for (const bool log_y : {false, true}) {
    Plot plot = {.title = "a < b", .x_label = "x", .y_label = "y"};
    plot.log_y = log_y;
    EXPECT_THAT(PlotSvg(plot), HasSubstr("a &lt; b"));
    plot.series.push_back({.name = "one", .points = {{0, 0}}});
    const std::string svg = PlotSvg(plot);
    EXPECT_THAT(svg, Not(HasSubstr("nan")));
    EXPECT_THAT(svg, Not(HasSubstr("inf")));
  }
}

}  // namespace
}  // namespace millrace::loadtest
