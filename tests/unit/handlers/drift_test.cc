#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "config/base/metrics.h"
#include "handlers/drift/drift_monitor.h"
#include "handlers/drift/prediction_counts.h"

namespace millrace::handlers {
namespace {

using ::testing::HasSubstr;

TEST(StabilityIndex, ByHand) {
  const auto index = [](std::vector<int64_t> expected,
                        std::vector<int64_t> actual) {
    return StabilityIndex(expected, actual);
  };
  EXPECT_EQ(index({5, 3, 2}, {50, 30, 20}), 0);
  // (0.25 - 0.5) ln(0.25 / 0.5) + (0.75 - 0.5) ln(0.75 / 0.5)
  EXPECT_NEAR(index({2, 2}, {1, 3}), 0.25 * std::log(2) + 0.25 * std::log(1.5),
              1e-12);
  EXPECT_NEAR(index({1, 3}, {2, 2}), index({2, 2}, {1, 3}), 1e-12);
  // A bin without counts has a share of 1e-4; one without any adds nothing.
  EXPECT_NEAR(index({1, 0, 0}, {0, 1, 0}), 2 * (1 - 1e-4) * std::log(1e4),
              1e-9);
}

TEST(PredictionCounts, Slots) {
  const PredictionCounts counts(3);
  EXPECT_EQ(counts.ClassSlot(0), 0u);
  EXPECT_EQ(counts.ClassSlot(2), 2u);
  EXPECT_EQ(counts.ClassSlot(3), 3u);
  EXPECT_EQ(counts.ClassSlot(int64_t{1} << 60), 3u);
  EXPECT_EQ(counts.ClassSlot(-1), 3u);
  EXPECT_EQ(PredictionCounts::ConfidenceBin(0), 0u);
  EXPECT_EQ(PredictionCounts::ConfidenceBin(0.049), 0u);
  EXPECT_EQ(PredictionCounts::ConfidenceBin(0.0501), 1u);
  EXPECT_EQ(PredictionCounts::ConfidenceBin(1), 19u);
  EXPECT_EQ(PredictionCounts::ConfidenceBin(1e300), 19u);
  EXPECT_EQ(PredictionCounts::ConfidenceBin(-1e300), 0u);
  EXPECT_EQ(PredictionCounts::ConfidenceBin(std::nan("")), 0u);
}

std::string Bins(const std::string& first) {
  std::string text = "[" + first;
  for (int i = 1; i < 20; ++i) text += ",1";
  return text + "]";
}

TEST(PredictionCounts, JsonReadsBack) {
  PredictionCounts counts(3);
  counts.classes = {4, 0, 7, 2};
  counts.confidence[5] = 13;
  const auto again = ParseCounts(CountsJson(counts).dump(), "x", 3);
  ASSERT_TRUE(again.ok()) << again.status().ToString();
  EXPECT_EQ(again->classes, counts.classes);
  EXPECT_EQ(again->confidence, counts.confidence);
  // Fewer classes: those beyond are one.
  EXPECT_EQ(ParseCounts(CountsJson(counts).dump(), "x", 1)->classes,
            (std::vector<int64_t>{4, 9}));
}

TEST(PredictionCounts, BadBaselines) {
  const auto refused = [](const std::string& text) {
    const auto counts = ParseCounts(text, "b.json", 10);
    EXPECT_EQ(counts.status().code(), StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(counts.status().message()), HasSubstr("b.json"));
    return std::string(counts.status().message());
  };
  EXPECT_THAT(refused("{"), HasSubstr("is no JSON"));
  EXPECT_THAT(refused("[]"), HasSubstr("object 'classes'"));
  EXPECT_THAT(refused("{}"), HasSubstr("object 'classes'"));
  EXPECT_THAT(refused(R"({"classes": [], "confidence": []})"),
              HasSubstr("object 'classes'"));
  EXPECT_THAT(refused(R"({"classes": {"0": 1}, "confidence": [1]})"),
              HasSubstr("1 bins of confidence; expected 20"));
  const auto with = [&](const std::string& classes, const std::string& first) {
    return refused(R"({"classes": )" + classes + R"(, "confidence": )" +
                   Bins(first) + "}");
  };
  EXPECT_THAT(with(R"({"cat": 1})", "1"), HasSubstr("the class 'cat'"));
  EXPECT_THAT(with(R"({"-1": 1})", "1"), HasSubstr("the class '-1'"));
  EXPECT_THAT(with(R"({"0": -1})", "1"), HasSubstr("classes.0"));
  EXPECT_THAT(with(R"({"0": 1e30})", "1"), HasSubstr("classes.0"));
  EXPECT_THAT(with(R"({"0": "1"})", "1"), HasSubstr("classes.0"));
  EXPECT_THAT(with(R"({"0": 1})", "true"), HasSubstr("confidence[0]"));
  EXPECT_THAT(with(R"({"0": 0})", "1"), HasSubstr("counts no predictions"));
  EXPECT_THAT(with("{}", "1"), HasSubstr("counts no predictions"));
}

TEST(PredictionCounts, OthersOfFewerClassesAreNotTakenForThose) {
  const std::string rest = R"("max_classes": 4, "confidence": )" + Bins("1");
  const auto parse = [&](const std::string& classes, int64_t max_classes) {
    return ParseCounts(R"({"classes": )" + classes + ", " + rest + "}",
                       "b.json", max_classes);
  };
  EXPECT_TRUE(parse(R"({"0": 3, "other": 2})", 4).ok());
  EXPECT_TRUE(parse(R"({"0": 3, "other": 2})", 3).ok());
  EXPECT_TRUE(parse(R"({"0": 3})", 5).ok());
  const auto refused = parse(R"({"0": 3, "other": 2})", 5);
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(refused.status().message()),
      HasSubstr("counts classes beyond 4 as one, but max_classes is 5"));
}

TEST(PredictionCounts, ABaselineTellsItsModel) {
  EXPECT_EQ(ModelOfCounts(R"({"model": "net"})"), "net");
  for (const char* none : {"", "[]", "{}", R"({"model": 3})"}) {
    EXPECT_EQ(ModelOfCounts(none), "");
  }
}

TEST(DriftMonitor, ComparesTheWindowAlone) {
  MetricRegistry registry;
  PredictionCounts baseline(4);
  baseline.classes = {2, 2, 0, 0, 0};
  baseline.confidence[10] = 4;
  const auto monitor = DriftMonitor::Create({.window = 4, .max_classes = 4},
                                            "m", "7", baseline, &registry);
  for (int i = 0; i < 100; ++i) monitor->Observe(3, 0.1);
  for (const int64_t class_idx : {0, 1, 1, 1}) {
    monitor->Observe(class_idx, 0.51);
  }
  const auto json = nlohmann::json::parse(monitor->Json());
  EXPECT_EQ(json["predictions"], 4);
  EXPECT_EQ(json["classes"], (nlohmann::json{{"0", 1}, {"1", 3}}));
  const double wanted = 0.25 * std::log(2) + 0.25 * std::log(1.5);
  EXPECT_NEAR(json["class_psi"].get<double>(), wanted, 1e-12);
  EXPECT_EQ(json["confidence_psi"], 0);
  const std::string text = registry.Text();
  EXPECT_THAT(text, HasSubstr(R"(millrace_predictions_total{class="3",)"
                              R"(model="m",version="7"} 100)"));
  EXPECT_THAT(text, HasSubstr(R"(millrace_predictions_total{class="1",)"
                              R"(model="m",version="7"} 3)"));
  EXPECT_THAT(text, HasSubstr(R"(millrace_drift_psi{model="m",of="confidence",)"
                              R"(version="7"} 0)"));
  EXPECT_THAT(text, HasSubstr(R"(millrace_prediction_confidence_bucket{)"
                              R"(model="m",version="7",le="0.1"} 100)"));
}

// Three predictions are no drift, whatever they are; the fourth may be.
TEST(DriftMonitor, FewPredictionsAreNotCompared) {
  MetricRegistry registry;
  PredictionCounts baseline(4);
  baseline.classes = {100, 0, 0, 0, 0};
  baseline.confidence[19] = 100;
  const auto monitor = DriftMonitor::Create(
      {.window = 10, .max_classes = 4, .min_predictions = 4}, "m", "1",
      baseline, &registry);
  for (int i = 0; i < 3; ++i) monitor->Observe(1, 0.3);
  auto json = nlohmann::json::parse(monitor->Json());
  EXPECT_EQ(json["predictions"], 3);
  EXPECT_EQ(json["min_predictions"], 4);
  EXPECT_FALSE(json.contains("class_psi"));
  EXPECT_FALSE(json.contains("confidence_psi"));
  EXPECT_EQ(registry.Text().find("millrace_drift_psi"), std::string::npos);
  monitor->Observe(1, 0.3);
  json = nlohmann::json::parse(monitor->Json());
  EXPECT_GT(json["class_psi"], 1);
  EXPECT_THAT(registry.Text(),
              HasSubstr(R"(millrace_drift_psi{model="m",of="class",)"));
}

TEST(DriftMonitor, WithoutABaselineNothingIsCompared) {
  MetricRegistry registry;
  const auto monitor = DriftMonitor::Create({}, "m", "1", {}, &registry);
  monitor->Observe(3, 0.1);
  EXPECT_FALSE(nlohmann::json::parse(monitor->Json()).contains("class_psi"));
  EXPECT_EQ(registry.Text().find("millrace_drift_psi"), std::string::npos);
}

}  // namespace
}  // namespace millrace::handlers
