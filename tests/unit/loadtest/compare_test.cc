#include "loadtest/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace millrace::loadtest {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::json;

Json Sample(double rate, double p99) {
  return {{"format", "millrace-loadtest/1"},
          {"model", "m"},
          {"concurrency", 4},
          {"request_throughput", rate},
          {"request_latency_ms", {{"mean", 10}, {"p50", 9}, {"p99", p99}}},
          {"errors", {{"rate", 0}}}};
}

TEST(Compare, CallsChangesBetterWorseOrTheSame) {
  const std::string text =
      *CompareReports(Sample(10, 20).dump(), Sample(12, 30).dump());
  EXPECT_THAT(text, ContainsRegex("Requests/s .*\\+20.0 %.*better"));
  EXPECT_THAT(text, ContainsRegex("latency p99 .*\\+50.0 %.*WORSE"));
  EXPECT_THAT(text, ContainsRegex("latency p50 .*same"));
  EXPECT_THAT(text, Not(HasSubstr("NOTE")));
  EXPECT_THAT(text, Not(HasSubstr("first token"))) << "in neither report";
}

TEST(Compare, WithinTheConfidenceIntervalsIsTheSame) {
  Json before = Sample(10, 20);
  Json after = Sample(12, 20);
  before["confidence_95"]["request_throughput"] = {{"low", 9}, {"high", 11}};
  after["confidence_95"]["request_throughput"] = {{"low", 10.5},
                                                  {"high", 13.5}};
  EXPECT_THAT(*CompareReports(before.dump(), after.dump()),
              ContainsRegex("Requests/s .*same"));
  after["confidence_95"]["request_throughput"] = {{"low", 11.5},
                                                  {"high", 12.5}};
  EXPECT_THAT(*CompareReports(before.dump(), after.dump()),
              ContainsRegex("Requests/s .*better"));
}

TEST(Compare, FiguresOfAnotherTypeAreLeftOut) {
  Json odd = Sample(10, 20);
  odd["confidence_95"]["request_throughput"] = {{"low", "x"}, {"high", 1}};
  odd["request_latency_ms"] = "fast";
  odd["goodput"] = Json::array();
  const auto text = CompareReports(odd.dump(), odd.dump());
  ASSERT_TRUE(text.ok());
  EXPECT_THAT(*text, ContainsRegex("Requests/s .*same"));
  EXPECT_THAT(*text, Not(HasSubstr("latency")));
  EXPECT_THAT(*text, Not(HasSubstr("Goodput")));
}

TEST(Compare, ADifferentLoadIsNoted) {
  Json other = Sample(10, 20);
  other["concurrency"] = 8;
  EXPECT_THAT(*CompareReports(Sample(10, 20).dump(), other.dump()),
              HasSubstr("NOTE: concurrency differs: 4 and 8"));
}

TEST(Compare, OtherFilesAreRefused) {
  for (const char* wrong : {"", "{}", "[1]", "{\"format\":\"x\"}"}) {
    EXPECT_THAT(
        std::string(
            CompareReports(Sample(1, 1).dump(), wrong).status().message()),
        HasSubstr("second file"))
        << wrong;
  }
}

}  // namespace
}  // namespace millrace::loadtest
