#include "loadtest/slo.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace::loadtest {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

TEST(Slo, ReadsObjectivesOfEachMetric) {
  const auto slo =
      ParseSlo("ttft:p99:500ms,itl:p99.9:50ms,tpot:mean:1.5s,latency:max:2m");
  ASSERT_TRUE(slo.ok()) << slo.status().ToString();
  ASSERT_EQ(slo->size(), 4u);
  EXPECT_EQ((*slo)[0].metric, Metric::kTtft);
  EXPECT_EQ((*slo)[0].percentile, 99);
  EXPECT_EQ((*slo)[0].limit, 500ms);
  EXPECT_EQ((*slo)[1].percentile, 99.9);
  EXPECT_EQ((*slo)[2].percentile, -1);
  EXPECT_EQ((*slo)[2].limit, 1500ms);
  EXPECT_EQ((*slo)[3].percentile, 100);
  EXPECT_EQ((*slo)[3].limit, 120s);
}

TEST(Slo, ErrorsNameTheWordAndTheRemedy) {
  const auto message = [](const char* text) {
    return std::string(ParseSlo(text).status().message());
  };
  EXPECT_THAT(message("ttft:500ms"), HasSubstr("metric:statistic:limit"));
  EXPECT_THAT(message("tft:p99:1s"), HasSubstr("'tft'"));
  EXPECT_THAT(message("ttft:q99:1s"), HasSubstr("'q99'"));
  EXPECT_THAT(message("ttft:p101:1s"), HasSubstr("'p101'"));
  EXPECT_THAT(message("ttft:p99:500"), HasSubstr("unit"));
  EXPECT_THAT(message(""), HasSubstr("metric:statistic:limit"));
}

TEST(Slo, ADurationNeedsItsUnit) {
  EXPECT_EQ(*ParseDuration("20us"), 20us);
  EXPECT_EQ(*ParseDuration("0.5h"), 30min);
  for (const char* wrong :
       {"", "5", "ms", "-1s", "1e3s", "1.2.3s", "5 s", "99999h"}) {
    EXPECT_FALSE(ParseDuration(wrong).ok()) << wrong;
  }
}

TEST(Slo, AGoodRequestIsWithinEveryLimit) {
  const Slo slo = *ParseSlo("ttft:p99:100ms,itl:p50:10ms,latency:p90:1s");
  EXPECT_TRUE(MeetsSlo(slo, 100ms, 10ms, 1s));
  EXPECT_FALSE(MeetsSlo(slo, 101ms, 10ms, 1s));
  EXPECT_FALSE(MeetsSlo(slo, 100ms, 11ms, 1s));
  EXPECT_FALSE(MeetsSlo(slo, 100ms, 10ms, 1001ms));
  EXPECT_TRUE(MeetsSlo(slo, -1ns, -1ns, 1s)) << "no stream, no tokens to judge";
}

}  // namespace
}  // namespace millrace::loadtest
