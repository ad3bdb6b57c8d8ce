#include "loadtest/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace millrace::loadtest {
namespace {

using testing::HasSubstr;

Report Sample() {
  Report report;
  report.url = "http://h";
  report.endpoint = "chat";
  report.arrival = "poisson";
  report.open_loop = true;
  report.load.rate = 5;
  report.seconds = 2;
  report.num_ok = 9;
  report.num_failed = 1;
  report.num_requests = 10;
  report.error_rate = 0.1;
  report.request_throughput = 4.5;
  report.errors["http_503"] = {1, "say \"no\", please"};
  Summary latency = {"request_latency_ms", "Request latency", "ms"};
  latency.count = 9;
  latency.mean = 12.5;
  latency.p99 = 40;
  report.summaries.push_back(latency);
  report.objectives.push_back({(*ParseSlo("latency:p99:30ms"))[0], 40, false});
  report.slo_met = false;
  report.warnings = {"the client is the bottleneck"};
  return report;
}

TEST(Report, ConfidenceIsStudentsT) {
  const Interval interval = ConfidenceOf({10, 12, 14});
  EXPECT_DOUBLE_EQ(interval.mean, 12);
  // t(2) = 4.303, s = 2, n = 3: 4.303 * 2 / sqrt(3) = 4.969.
  EXPECT_NEAR(interval.high, 16.969, 1e-3);
  EXPECT_NEAR(interval.low, 7.031, 1e-3);
  EXPECT_EQ(ConfidenceOf({3}).low, 3);
  EXPECT_EQ(ConfidenceOf({}).mean, 0);
}

TEST(Report, JsonHasTheKeysWithUnits) {
  const auto json = nlohmann::json::parse(JsonText(Sample()));
  EXPECT_EQ(json["request_latency_ms"]["mean"], 12.5);
  EXPECT_EQ(json["request_latency_ms"]["p99"], 40);
  EXPECT_EQ(json["request_throughput"], 4.5);
  EXPECT_EQ(json["request_rate"], 5);
  EXPECT_FALSE(json.contains("concurrency"));
  EXPECT_EQ(json["errors"]["by_kind"]["http_503"], 1);
  EXPECT_EQ(json["errors"]["rate"], 0.1);
  EXPECT_EQ(json["slo"]["met"], false);
  EXPECT_EQ(json["slo"]["objectives"][0]["limit_ms"], 30);
}

TEST(Report, TheTableNamesFailuresObjectivesAndWarnings) {
  const std::string table = TableText(Sample());
  EXPECT_THAT(table, HasSubstr("Request latency (ms)"));
  EXPECT_THAT(table, HasSubstr("5 requests/s, poisson"));
  EXPECT_THAT(table, HasSubstr("http_503"));
  EXPECT_THAT(table, HasSubstr("latency p99 of 30.00 ms: 40.00 ms, MISSED"));
  EXPECT_THAT(table, HasSubstr("WARNING: the client is the bottleneck"));
}

TEST(Report, CsvHasOneRowAMetric) {
  const std::string csv = ReportCsv(Sample());
  EXPECT_THAT(csv, HasSubstr("request_latency_ms,ms,9,12.5,"));
  EXPECT_THAT(csv, HasSubstr("errors.http_503,requests,,1,"));
  size_t commas = std::string::npos;
  size_t begin = 0;
  for (size_t end; (end = csv.find('\n', begin)) != csv.npos; begin = end + 1) {
    const std::string line = csv.substr(begin, end - begin);
    const auto count =
        static_cast<size_t>(std::count(line.begin(), line.end(), ','));
    if (commas == std::string::npos) commas = count;
    EXPECT_EQ(count, commas) << line;
  }
}

TEST(Report, TheRateOverTimeIsThatOfOneRepetition) {
  const auto plot = [](int64_t repetitions) {
    Report report = Sample();
    report.repetitions = repetitions;
    for (int64_t run = 0; run < repetitions; ++run) {
      for (int i = 0; i < 100; ++i) {
        RequestPoint point;
        point.at_ms = static_cast<float>(20 * i);
        point.latency_ms = 5;
        point.ok = true;
        report.points.push_back(point);
      }
    }
    const std::string html = ReportHtml(report);
    const size_t begin = html.rfind("<svg");
    return html.substr(begin, html.find("</svg>", begin) - begin);
  };
  EXPECT_THAT(plot(1), HasSubstr("Requests/s, counted when they end"));
  EXPECT_EQ(plot(3), plot(1));
}

TEST(Report, AFileThatCannotBeWrittenIsAnError) {
  EXPECT_THAT(std::string(WriteFile("/nowhere/x.json", "").message()),
              HasSubstr("/nowhere/x.json"));
}

}  // namespace
}  // namespace millrace::loadtest
