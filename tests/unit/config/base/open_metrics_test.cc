#include "config/base/open_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "config/base/metrics.h"

namespace millrace {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

constexpr char kTrace[] = "4bf92f3577b34da6a3ce929d0e0e4736";

TEST(OpenMetrics, EachKindIsWrittenAsTheFormatAsks) {
  MetricRegistry registry;
  const Counter total =
      registry.AddCounter("a_total", "What \"a\" is.", {{"k", "x\"\\\ny"}});
  total.Add(3);
  const Gauge gauge = registry.AddGauge("b", "B.");
  gauge.Set(std::numeric_limits<double>::infinity());
  const Histogram histogram = registry.AddHistogram("c", "C.", {0.05, 1});
  histogram.Observe(0.5);
  EXPECT_EQ(registry.OpenMetricsText(),
            "# TYPE a counter\n"
            "# HELP a What \\\"a\\\" is.\n"
            "a_total{k=\"x\\\"\\\\\\ny\"} 3\n"
            "# TYPE b gauge\n"
            "# HELP b B.\n"
            "b +Inf\n"
            "# TYPE c histogram\n"
            "# HELP c C.\n"
            "c_bucket{le=\"0.05\"} 0\n"
            "c_bucket{le=\"1.0\"} 1\n"
            "c_bucket{le=\"+Inf\"} 1\n"
            "c_count 1\n"
            "c_sum 0.5\n"
            "# EOF\n");
}

// Prometheus would look for another name: the format wants _total.
TEST(OpenMetrics, ACounterWithoutTotalKeepsItsName) {
  MetricRegistry registry;
  const Counter counter = registry.AddCounter("nv_inference_count", "Rows.");
  EXPECT_THAT(registry.OpenMetricsText(),
              HasSubstr("# TYPE nv_inference_count unknown\n"
                        "# HELP nv_inference_count Rows.\n"
                        "nv_inference_count 0\n"));
}

TEST(OpenMetrics, ABucketHasTheLastTraceThatFellIntoIt) {
  MetricRegistry registry;
  const Histogram of_m =
      registry.AddHistogram("c", "C.", {0.1, 1}, {{"model", "m"}});
  const Histogram of_n =
      registry.AddHistogram("c", "C.", {0.1, 1}, {{"model", "n"}});
  of_m.Observe(0.2, std::string(32, '0'));
  of_m.Observe(1, kTrace);  // a bound belongs to its bucket
  of_m.Observe(0.3);        // in no trace
  of_m.Observe(7, kTrace);
  of_n.Observe(0.5, "");
  const std::string text = registry.OpenMetricsText();
  EXPECT_THAT(text, HasSubstr("c_bucket{model=\"m\",le=\"0.1\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("c_bucket{model=\"m\",le=\"1.0\"} 3 # "
                              "{trace_id=\"4bf92f3577b34da6a3ce929d0e0e4736\"} "
                              "1 "));
  EXPECT_THAT(text, HasSubstr("c_bucket{model=\"m\",le=\"+Inf\"} 4 # "
                              "{trace_id=\"4bf92f3577b34da6a3ce929d0e0e4736\"} "
                              "7 "));
  EXPECT_THAT(text, HasSubstr("c_bucket{model=\"n\",le=\"1.0\"} 1\n"));
  EXPECT_THAT(text, Not(HasSubstr("00000000")));
  EXPECT_THAT(registry.Text(), Not(HasSubstr(kTrace)));
}

TEST(OpenMetrics, ExemplarsLeaveWithTheirSeries) {
  MetricRegistry registry;
  {
    const Histogram gone = registry.AddHistogram("c", "C.", {1});
    gone.Observe(0.5, kTrace);
  }
  const Histogram again = registry.AddHistogram("c", "C.", {1});
  EXPECT_THAT(registry.OpenMetricsText(), Not(HasSubstr(kTrace)));
}

}  // namespace
}  // namespace millrace
