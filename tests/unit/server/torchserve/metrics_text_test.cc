#include "server/torchserve/metrics_text.h"

#include <gtest/gtest.h>

namespace millrace::server::torchserve {
namespace {

// The lines are those of a TorchServe 0.12.
TEST(MetricsText, IsTorchServes) {
  EXPECT_EQ(MetricsText("# HELP Requests2XX x\n"
                        "# TYPE Requests2XX counter\n"
                        "Requests2XX{Hostname=\"vm\",Level=\"Host\"} 85\n",
                        {}),
            "# HELP Requests2XX x\n"
            "# TYPE Requests2XX counter\n"
            "Requests2XX{Level=\"Host\",Hostname=\"vm\",} 85.0\n");
  EXPECT_EQ(MetricsText("ts_inference_requests_total{hostname=\"vm\","
                        "model_name=\"m\",model_version=\"1.0\"} 14\n"
                        "PredictionTime{Hostname=\"vm\",Level=\"Model\","
                        "ModelName=\"m\"} 0.09\n",
                        {}),
            "ts_inference_requests_total{model_name=\"m\","
            "model_version=\"1.0\",hostname=\"vm\",} 14.0\n"
            "PredictionTime{ModelName=\"m\",Level=\"Model\",Hostname=\"vm\",} "
            "0.09\n");
}

TEST(MetricsText, LabelsMayHoldWhatElseMeansSomething) {
  EXPECT_EQ(
      MetricsText("a{x=\"1,2} \\\"\\\\\",y=\"{\"} -3\nb 4\nc{} NaN\n"
                  "d 1e+20 5\n",
                  {}),
      "a{x=\"1,2} \\\"\\\\\",y=\"{\",} -3.0\nb 4.0\nc{} NaN\nd 1e+20 5\n");
}

TEST(MetricsText, FamiliesAndSamplesAreChosenByName) {
  const char* text =
      "# HELP a first\n# TYPE a counter\na 1\n"
      "# HELP h second\n# TYPE h histogram\nh_bucket{le=\"1\"} 2\n"
      "h_sum 3\nh_count 2\n";
  EXPECT_EQ(MetricsText(text, {"a", "none"}),
            "# HELP a first\n# TYPE a counter\na 1.0\n");
  EXPECT_EQ(MetricsText(text, {"h"}),
            "# HELP h second\n# TYPE h histogram\nh_bucket{le=\"1\",} 2.0\n"
            "h_sum 3.0\nh_count 2.0\n");
  EXPECT_EQ(MetricsText(text, {"h_count"}), "h_count 2.0\n");
  EXPECT_EQ(MetricsText(text, {"none"}), "");
}

}  // namespace
}  // namespace millrace::server::torchserve
