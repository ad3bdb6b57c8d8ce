#include "config/base/metrics.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

namespace millrace {
namespace {

TEST(Metrics, TextHoldsHelpTypeLabelsAndValue) {
  MetricRegistry registry;
  const Counter counter =
      registry.AddCounter("millrace_x_total", "What x is.", {{"model", "m"}});
  counter.Add();
  counter.Add(2);
  const Gauge gauge = registry.AddGauge("millrace_y", "What y is.");
  gauge.Set(1.5);
  const Histogram histogram =
      registry.AddHistogram("millrace_z_seconds", "What z is.", {0.1, 1});
  histogram.Observe(0.5);
  const std::string text = registry.Text();
  for (const char* line :
       {"# HELP millrace_x_total What x is.", "# TYPE millrace_x_total counter",
        "millrace_x_total{model=\"m\"} 3", "millrace_y 1.5",
        "millrace_z_seconds_bucket{le=\"0.1\"} 0",
        "millrace_z_seconds_bucket{le=\"1\"} 1",
        "millrace_z_seconds_bucket{le=\"+Inf\"} 1",
        "millrace_z_seconds_count 1"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
  }
}

TEST(Metrics, SameNameAndLabelsAreTheSameMetric) {
  MetricRegistry registry;
  const Counter one = registry.AddCounter("a_total", "A.", {{"k", "1"}});
  const Counter two = registry.AddCounter("a_total", "A.", {{"k", "2"}});
  one.Add(2);
  two.Add(5);
  EXPECT_EQ(registry.AddCounter("a_total", "A.", {{"k", "1"}}).value(), 2);
}

TEST(MetricsDeathTest, AnotherKindUnderTheSameNameStops) {
  if (std::getenv("MILLRACE_TEST_EMULATED") != nullptr) {
    GTEST_SKIP() << "an emulated program cannot start itself once more";
  }
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  MetricRegistry registry;
  const Counter counter = registry.AddCounter("a_total", "A.");
  EXPECT_DEATH(registry.AddGauge("a_total", "A."), "CHECK failed");
  EXPECT_DEATH(registry.AddCounter("a_total", "B."), "CHECK failed");
}

TEST(Metrics, HandlesWithoutRegistryCountNothing) {
  Counter().Add();
  Gauge().Set(1);
  Gauge().Add(1);
  Histogram().Observe(1);
  EXPECT_EQ(Counter().value(), 0);
  EXPECT_EQ(Gauge().value(), 0);
}

TEST(Metrics, FoldRunsAtEachScrapeUntilItsHandleDies) {
  MetricRegistry registry;
  const Gauge gauge = registry.AddGauge("g", "G.");
  int runs = 0;
  std::shared_ptr<void> handle = registry.OnScrape([&] { gauge.Set(++runs); });
  EXPECT_NE(registry.Text().find("\ng 1"), std::string::npos);
  EXPECT_NE(registry.Text().find("\ng 2"), std::string::npos);
  handle.reset();
  EXPECT_NE(registry.Text().find("\ng 2"), std::string::npos);
  EXPECT_EQ(runs, 2);
}

TEST(Metrics, SeriesLeavesWithItsLastHandle) {
  MetricRegistry registry;
  const Counter other = registry.AddCounter("a_total", "A.", {{"k", "2"}});
  Counter counter = registry.AddCounter("a_total", "A.", {{"k", "1"}});
  counter.Add(3);
  {
    const Counter copy = counter;
    const Counter same = registry.AddCounter("a_total", "A.", {{"k", "1"}});
    counter = Counter();
    EXPECT_NE(registry.Text().find("a_total{k=\"1\"} 3"), std::string::npos);
  }
  EXPECT_EQ(registry.Text().find("k=\"1\""), std::string::npos);
  EXPECT_NE(registry.Text().find("k=\"2\""), std::string::npos);
  // One that comes back starts anew.
  EXPECT_EQ(registry.AddCounter("a_total", "A.", {{"k", "1"}}).value(), 0);
}

TEST(Metrics, AFamilyWithoutSeriesIsNotShown) {
  MetricRegistry registry;
  { const Gauge gauge = registry.AddGauge("g_alone", "G."); }
  { const Histogram h = registry.AddHistogram("h_alone", "H.", {1}); }
  EXPECT_EQ(registry.Text().find("_alone"), std::string::npos);
}

TEST(Metrics, SeriesComeAndGoWhileOthersScrape) {
  MetricRegistry registry;
  const auto come_and_go = [&] {
    for (int i = 0; i < 500; ++i) {
      registry.AddCounter("c_total", "C.", {{"k", "1"}}).Add();
    }
  };
  std::thread a(come_and_go), b(come_and_go);
  for (int i = 0; i < 50; ++i) registry.Text();
  a.join();
  b.join();
  EXPECT_EQ(registry.Text().find("c_total"), std::string::npos);
}

TEST(Metrics, HandleMayOutliveTheRegistry) {
  auto registry = std::make_unique<MetricRegistry>();
  std::shared_ptr<void> handle = registry->OnScrape([] {});
  Counter counter = registry->AddCounter("c_total", "C.");
  registry.reset();
  handle.reset();
  counter.Add();
  EXPECT_EQ(counter.value(), 1);
  counter = Counter();
}

TEST(Metrics, ThreadsUpdateAndScrapeAtOnce) {
  MetricRegistry registry;
  const Counter counter = registry.AddCounter("c_total", "C.");
  std::thread a([&] {
    for (int i = 0; i < 1000; ++i) counter.Add();
  });
  std::thread b([&] {
    for (int i = 0; i < 20; ++i) {
      int local = 0;
      const auto hook = registry.OnScrape([&] { ++local; });
      EXPECT_FALSE(registry.Text().empty());
    }
  });
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(registry.Text().empty());
  a.join();
  b.join();
  EXPECT_EQ(counter.value(), 1000);
}

TEST(Metrics, LatencyBucketsRiseFromOneMillisecondToOneMinute) {
  const auto& bounds = LatencyBucketsSeconds();
  EXPECT_EQ(bounds.front(), 0.001);
  EXPECT_EQ(bounds.back(), 60);
  for (size_t i = 1; i < bounds.size(); ++i) {
    EXPECT_LT(bounds[i - 1], bounds[i]);
  }
}

}  // namespace
}  // namespace millrace
