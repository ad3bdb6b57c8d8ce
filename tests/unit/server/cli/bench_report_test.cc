// The figures of a bench run, by hand: 100 tokens in 2 s.
#include "server/cli/bench_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

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
  // 100 tokens in 2, 4 and 1 s; 10 GB in 2 s, of 10 GB/s; 4 GMAC in 2 s.
  EXPECT_EQ(text,
            "tg100        1      0     50.0     25.0    100.0    5.0     50%"
            "     2.0     10%\n");
  EXPECT_EQ(text.size(), TableHeader().size());
  EXPECT_LE(text.size(), 81u) << "as wide as a terminal, and a line break";
}

TEST(BenchReport, MachineTextFitsATerminal) {
  BenchReport report;
  report.info.name = std::string(200, 'x');
  report.roofline.prompt_macs_per_s = 1e12;
  std::istringstream lines(MachineText(report));
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 80u) << line;
  }
  EXPECT_THAT(MachineText(report), HasSubstr("1000 for prompts"));
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
