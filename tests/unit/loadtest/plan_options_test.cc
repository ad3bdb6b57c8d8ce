#include "loadtest/plan/plan_options.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "loadtest/report.h"
#include "tests/support/temp_path.h"

namespace millrace::loadtest {
namespace {

// A server model and a trace of three lines.
class PlanOptionsTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(WriteFile(model_, R"({"format": "millrace-server-model/1",)"
                                  R"( "kind": "llm", "step_base_ms": 6})")
                    .ok());
    std::string lines;
    for (const char* at : {"0", "10", "20"}) {
      lines += std::string(R"({"timestamp": )") + at +
               R"(, "input_length": 8, "output_length": 2})" + "\n";
    }
    ASSERT_TRUE(WriteFile(trace_, lines).ok());
  }
  void TearDown() override {
    std::remove(model_.c_str());
    std::remove(trace_.c_str());
  }

  // -1: no limit.
  int64_t NumRequests(std::vector<std::string> args) {
    args.insert(args.end(), {"--server-model", model_, "--replicas", "1"});
    const auto options = ParsePlanOptions(args);
    EXPECT_TRUE(options.ok()) << options.status().ToString();
    return options.ok() ? options->load.num_requests : 0;
  }

  const std::string model_ = TempPath("plan_options_model.json");
  const std::string trace_ = TempPath("plan_options_trace.jsonl");
};

TEST_F(PlanOptionsTest, ATraceIsReplayedToItsEnd) {
  EXPECT_EQ(NumRequests({"--arrival", "trace", "--dataset", trace_}), -1);
  EXPECT_EQ(NumRequests({"--arrival=trace", "--dataset", trace_}), -1);
  EXPECT_EQ(NumRequests({"--arrival=trace", "--dataset", trace_, "-n2"}), 2);
}

TEST_F(PlanOptionsTest, OtherArrivalsAreTenThousandUnlessTheLineSays) {
  EXPECT_EQ(NumRequests({"--request-rate", "3"}), 10'000);
  EXPECT_EQ(NumRequests({"--request-rate", "3", "--json", "trace"}), 10'000)
      << "the name of a file";
  EXPECT_EQ(NumRequests({"--request-rate", "3", "-n50"}), 50);
  EXPECT_EQ(NumRequests({"--request-rate", "3", "--duration=5s"}), -1);
}

}  // namespace
}  // namespace millrace::loadtest
