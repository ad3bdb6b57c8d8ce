#include "config/base/metric_alias.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "config/base/metrics.h"

namespace millrace {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(MetricAlias, ARenamedLabelAScaledSumAndAFixedLabel) {
  MetricRegistry registry;
  const Histogram wait = registry.AddHistogram(
      "wait_seconds", "Wait.", {1}, {{"model", "m"}, {"version", "1"}});
  wait.Observe(0.5);
  wait.Observe(0.25);
  registry.ExportAlso({{.name = "their:wait_us",
                        .help = "Waited.",
                        .source = "wait_seconds",
                        .part = MetricPart::kSum,
                        .scale = 1e6,
                        .labels = {{"model", "model_name"}},
                        .fixed = {{"engine", "0"}}},
                       {.name = "their:wait",
                        .help = "Waits.",
                        .kind = MetricKind::kHistogram,
                        .source = "wait_seconds",
                        .part = MetricPart::kHistogram,
                        .labels = {{"model", "model_name"}}}});
  const std::string text = registry.Text();
  EXPECT_THAT(text, HasSubstr("# TYPE their:wait_us counter\n"
                              "their:wait_us{engine=\"0\",model_name=\"m\"} "
                              "750000\n"));
  EXPECT_THAT(text, HasSubstr("their:wait_bucket{model_name=\"m\",le=\"1\"} "
                              "2\n"));
}

TEST(MetricAlias, OrTheGreatestOfThemIsShown) {
  MetricRegistry registry;
  const Gauge one = registry.AddGauge("seen", "Seen.", {{"model", "a"}});
  const Gauge two = registry.AddGauge("seen", "Seen.", {{"model", "b"}});
  one.Set(30);
  two.Set(20);
  registry.ExportAlso({{.name = "theirs",
                        .help = "The last one.",
                        .kind = MetricKind::kGauge,
                        .source = "seen",
                        .part = MetricPart::kGreatest}});
  EXPECT_THAT(registry.Text(), HasSubstr("\ntheirs 30\n"));
}

TEST(MetricAlias, SeriesThatEndUpWithTheSameLabelsAreAdded) {
  MetricRegistry registry;
  const Counter ok = registry.AddCounter("ends_total", "Ends.", {{"how", "a"}});
  const Counter bad =
      registry.AddCounter("ends_total", "Ends.", {{"how", "b"}});
  const Counter odd =
      registry.AddCounter("ends_total", "Ends.", {{"how", "c"}});
  ok.Add(2);
  bad.Add(3);
  odd.Add(50);
  registry.ExportAlso({{.name = "theirs",
                        .help = "Two of three.",
                        .source = "ends_total",
                        .where = {"how", "a"}},
                       {.name = "theirs",
                        .help = "Two of three.",
                        .source = "ends_total",
                        .where = {"how", "b"}}});
  EXPECT_THAT(registry.Text(), HasSubstr("\ntheirs 5\n"));
}

TEST(MetricAlias, OnlyModelsThatHaveAnotherMetric) {
  MetricRegistry registry;
  const Gauge text = registry.AddGauge("running", "R.", {{"model", "text"}});
  const Gauge graph = registry.AddGauge("running", "R.", {{"model", "graph"}});
  const Counter tokens =
      registry.AddCounter("tokens_total", "T.", {{"model", "text"}});
  registry.ExportAlso({{.name = "theirs",
                        .help = "R.",
                        .kind = MetricKind::kGauge,
                        .source = "running",
                        .of_models_with = "tokens_total",
                        .labels = {{"model", "model"}}},
                       {.name = "absent", .help = "A.", .source = "nothing"}});
  const std::string shown = registry.Text();
  EXPECT_THAT(shown, HasSubstr("theirs{model=\"text\"} 0"));
  EXPECT_THAT(shown, Not(HasSubstr("theirs{model=\"graph\"}")));
  EXPECT_THAT(shown, Not(HasSubstr("absent")));
}

TEST(MetricAlias, ARecentMeanIsOfWhatCameSinceTheLastScrape) {
  MetricRegistry registry;
  const Histogram wait = registry.AddHistogram("wait_seconds", "W.", {1});
  registry.ExportAlso({{.name = "wait_ms",
                        .help = "W.",
                        .kind = MetricKind::kGauge,
                        .source = "wait_seconds",
                        .part = MetricPart::kRecentMean,
                        .scale = 1000}});
  EXPECT_THAT(registry.Text(), HasSubstr("\nwait_ms 0\n"));
  wait.Observe(1);
  wait.Observe(3);
  EXPECT_THAT(registry.Text(), HasSubstr("\nwait_ms 2000\n"));
  wait.Observe(8);
  EXPECT_THAT(registry.Text(), HasSubstr("\nwait_ms 8000\n"));
  EXPECT_THAT(registry.Text(), HasSubstr("\nwait_ms 8000\n"));
}

TEST(MetricAlias, ARecentMeanIsThatOfAllSeriesThatBecomeOne) {
  MetricRegistry registry;
  const Histogram one = registry.AddHistogram("wait", "W.", {1}, {{"v", "1"}});
  const Histogram two = registry.AddHistogram("wait", "W.", {1}, {{"v", "2"}});
  registry.ExportAlso({{.name = "mean",
                        .help = "W.",
                        .kind = MetricKind::kGauge,
                        .source = "wait",
                        .part = MetricPart::kRecentMean}});
  for (int i = 0; i < 3; ++i) one.Observe(10);
  two.Observe(50);
  EXPECT_THAT(registry.Text(), HasSubstr("\nmean 20\n"));
  two.Observe(30);
  EXPECT_THAT(registry.Text(), HasSubstr("\nmean 30\n"));
}

TEST(MetricAlias, ARecentMeanBeginsAnewWithTheSeries) {
  MetricRegistry registry;
  registry.ExportAlso({{.name = "mean",
                        .help = "W.",
                        .kind = MetricKind::kGauge,
                        .source = "wait",
                        .part = MetricPart::kRecentMean}});
  const auto load = [&] { return registry.AddHistogram("wait", "W.", {1}); };
  std::optional<Histogram> wait = load();
  for (int i = 0; i < 10; ++i) wait->Observe(6);
  EXPECT_THAT(registry.Text(), HasSubstr("\nmean 6\n"));
  wait.reset();  // the model is unloaded
  registry.Text();
  wait = load();
  EXPECT_THAT(registry.Text(), HasSubstr("\nmean 6\n"));
  wait->Observe(2);
  wait->Observe(4);
  EXPECT_THAT(registry.Text(), HasSubstr("\nmean 3\n"));
  wait.reset();
  wait = load();  // between two scrapes, and asked as often
  for (int i = 0; i < 2; ++i) wait->Observe(1);
  EXPECT_THAT(registry.Text(), HasSubstr("\nmean 1\n"));
}

TEST(MetricAlias, AnAliasMadeBeforeDividesASumOrWhatCameSinceTheLastScrape) {
  MetricRegistry registry;
  const Counter tokens = registry.AddCounter("tokens_total", "T.", {});
  const Histogram one = registry.AddHistogram("size", "S.", {1}, {{"m", "a"}});
  const Histogram two = registry.AddHistogram("size", "S.", {1}, {{"m", "b"}});
  registry.ExportAlso({{.name = "steps",
                        .help = "S.",
                        .source = "size",
                        .part = MetricPart::kCount},
                       {.name = "size_of_step",
                        .help = "S.",
                        .kind = MetricKind::kGauge,
                        .source = "size",
                        .part = MetricPart::kSum,
                        .per = "steps"},
                       {.name = "tokens_of_step",
                        .help = "T.",
                        .kind = MetricKind::kGauge,
                        .source = "tokens_total",
                        .part = MetricPart::kRecentMean,
                        .per = "steps"}});
  EXPECT_THAT(registry.Text(), HasSubstr("\nsize_of_step 0\n"));
  one.Observe(2);
  two.Observe(4);
  two.Observe(6);
  tokens.Add(30);
  std::string text = registry.Text();
  EXPECT_THAT(text, HasSubstr("\nsteps 3\n"));
  EXPECT_THAT(text, HasSubstr("\nsize_of_step 4\n"));
  EXPECT_THAT(text, HasSubstr("\ntokens_of_step 10\n"));
  // No step came: these tokens are those of the next one.
  tokens.Add(5);
  EXPECT_THAT(registry.Text(), HasSubstr("\ntokens_of_step 10\n"));
  tokens.Add(2);
  one.Observe(0);
  EXPECT_THAT(registry.Text(), HasSubstr("\ntokens_of_step 7\n"));
}

}  // namespace
}  // namespace millrace
