// The expected lines are those that TorchServe 0.12 wrote, times and numbers
// aside.
#include "server/torchserve/metric_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>

#include "tests/support/temp_path.h"

namespace millrace::server::torchserve {
namespace {

namespace fs = std::filesystem;

// Without what changes: "TIME - ", the host's name, the seconds.
std::vector<std::string> LinesOf(const std::string& path) {
  const std::regex form(
      R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d,\d{3} - (.*\|#hostname:)[^,]+)"
      R"((.*,timestamp:)\d{10})");
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    std::smatch match;
    lines.push_back(std::regex_match(line, match, form)
                        ? match[1].str() + "h" + match[2].str()
                        : "wrong: " + line);
  }
  return lines;
}

TEST(MetricLog, NumbersAreWrittenAsJavaWritesThem) {
  EXPECT_EQ(MetricNumber(1), "1.0");
  EXPECT_EQ(MetricNumber(0), "0.0");
  EXPECT_EQ(MetricNumber(19453.61), "19453.61");
  EXPECT_EQ(MetricNumber(1e20), "100000000000000000000.0");
  EXPECT_EQ(MetricNumber(-0.125), "-0.125");
  EXPECT_EQ(MetricNumber(1.0 / 0.0), "0.0");
}

TEST(MetricLog, NamesCannotBreakALine) {
  EXPECT_EQ(MetricText("a|#b,c:d\n2026"), "a__b_c_d_2026");
  EXPECT_EQ(MetricText(std::string(500, 'x')).size(), 200u);
}

TEST(MetricLog, LinesAreTorchServes) {
  const std::string folder = TempPath("metrics") + "/new/logs";
  auto log = MetricLog::Open({.folder = folder, .system_metrics = false});
  ASSERT_TRUE(log.ok()) << log.status().message();
  (*log)->WorkersLoaded("linear", "1.0", 2, 1.9445);
  (*log)->Requested("linear", "");
  (*log)->Responded(200);
  (*log)->Predicted("linear", "1.0", "id-1",
                    {.total_s = 0.0195,
                     .queue_s = 0.0045,
                     .compute_s = 0.015,
                     .answer_s = 0.0035});
  (*log)->Responded(404);
  (*log)->Responded(503);
  EXPECT_THAT(
      LinesOf(folder + "/ts_metrics.log"),
      testing::ElementsAre(
          "WorkerLoadTime.Milliseconds:1944.0|#WorkerName:W-9000-linear_1.0,"
          "Level:Host|#hostname:h,timestamp:",
          "WorkerLoadTime.Milliseconds:1944.0|#WorkerName:W-9001-linear_1.0,"
          "Level:Host|#hostname:h,timestamp:",
          "ts_inference_requests_total.Count:1.0|#model_name:linear,"
          "model_version:default|#hostname:h,timestamp:",
          "Requests2XX.Count:1.0|#Level:Host|#hostname:h,timestamp:",
          "ts_inference_latency_microseconds.Microseconds:19500.0|#model_name:"
          "linear,model_version:1.0|#hostname:h,timestamp:",
          "ts_queue_latency_microseconds.Microseconds:4500.0|#model_name:"
          "linear,model_version:1.0|#hostname:h,timestamp:",
          "QueueTime.Milliseconds:4.0|#Level:Host|#hostname:h,timestamp:",
          "WorkerThreadTime.Milliseconds:3.0|#Level:Host|#hostname:h,"
          "timestamp:",
          "Requests4XX.Count:1.0|#Level:Host|#hostname:h,timestamp:",
          "Requests5XX.Count:1.0|#Level:Host|#hostname:h,timestamp:"));
  EXPECT_THAT(LinesOf(folder + "/model_metrics.log"),
              testing::ElementsAre(
                  "HandlerTime.ms:15.0|#ModelName:linear,Level:Model|#hostname:"
                  "h,requestID:id-1,timestamp:",
                  "PredictionTime.ms:15.0|#ModelName:linear,Level:Model|#"
                  "hostname:h,requestID:id-1,timestamp:"));
}

TEST(MetricLog, AFullFileIsRenamedAndTheOlderOneGoes) {
  const std::string folder = TempPath("full");
  fs::create_directories(folder);
  const std::string path = folder + "/ts_metrics.log";
  std::ofstream(path) << "old\n";
  fs::resize_file(path, 100 << 20);  // sparse
  std::ofstream(path + ".1") << "older\n";
  auto log = MetricLog::Open({.folder = folder, .system_metrics = false});
  ASSERT_TRUE(log.ok());
  (*log)->Responded(200);
  (*log)->Responded(200);
  EXPECT_EQ(LinesOf(path).size(), 2u);
  EXPECT_EQ(fs::file_size(path + ".1"), 100u << 20);
}

TEST(MetricLog, AFolderThatCannotBeWrittenIsNamed) {
  const std::string file = TempPath("file");
  std::ofstream(file) << "x";
  const auto log = MetricLog::Open({.folder = file + "/logs"});
  ASSERT_FALSE(log.ok());
  EXPECT_THAT(std::string(log.status().message()),
              testing::HasSubstr("METRICS_LOCATION"));
}

}  // namespace
}  // namespace millrace::server::torchserve
