// The figures of a bench run, by hand: 100 tokens in 2 s.
#include "server/cli/bench_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace millrace::server {
namespace {

using ::testing::HasSubstr;

BenchCase Row() {
  BenchCase row;
  row.name = "tg100";
  row.tokens = 100;
  row.weight_bytes = 8e9;
  row.kv_bytes = 2e9;
  row.linear_macs = 4e9;
  row.seconds = {4, 1, 2};
  return row;
}

TEST(BenchReport, MedianOfOddAndEvenCounts) {
  EXPECT_EQ(Median({3, 1, 2}), 2);
  EXPECT_EQ(Median({4, 1, 2, 3}), 2.5);
  EXPECT_EQ(Median({}), 0);
}

TEST(BenchReport, RowTellsRatesAndShares) {
  const std::string text =
      TableRow(Row(), {.read_bytes_per_s = 10e9, .macs_per_s = 20e9});
  EXPECT_THAT(text, HasSubstr("50.0 (   25.0-  100.0)"));  // tokens/s
  EXPECT_THAT(text, HasSubstr("4.0GB/s"));                 // 8 GB in 2 s
  EXPECT_THAT(text, HasSubstr("1.0GB/s"));                 // 2 GB in 2 s
  EXPECT_THAT(text, HasSubstr("50%"));                     // 5 of 10 GB/s
  EXPECT_THAT(text, HasSubstr("10%"));                     // 2 of 20 GMAC/s
}

TEST(BenchReport, JsonHasTheSameRatesAndWhatWasSkipped) {
  BenchReport report;
  report.cases.push_back(Row());
  report.cases.emplace_back().skipped = "no room";
  const auto json = ReportJson(report);
  EXPECT_EQ(json["results"][0]["tokens_per_s"], 50.0);
  EXPECT_EQ(json["results"][0]["weight_bytes_per_s"], 4e9);
  EXPECT_EQ(json["results"][1]["skipped"], "no room");
  EXPECT_FALSE(json["results"][1].contains("tokens_per_s"));
}

}  // namespace
}  // namespace millrace::server
