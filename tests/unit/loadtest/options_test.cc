#include "loadtest/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace::loadtest {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;

using Args = std::vector<std::string>;

TEST(Options, ReadsAnOpenLoop) {
  const auto options = ParseOptions({"--url",
                                     "http://h:9",
                                     "-m",
                                     "x",
                                     "--streaming",
                                     "--request-rate=2.5",
                                     "--arrival",
                                     "poisson",
                                     "--duration",
                                     "30s",
                                     "--warmup",
                                     "5s",
                                     "--input-tokens",
                                     "100:20",
                                     "--slo",
                                     "ttft:p99:1s",
                                     "--header",
                                     "X-A: b",
                                     "--api-key",
                                     "k",
                                     "--random-seed",
                                     "4"});
  ASSERT_TRUE(options.ok()) << options.status().ToString();
  EXPECT_TRUE(options->open_loop);
  EXPECT_EQ(options->url.port, "9");
  EXPECT_EQ(options->arrivals.kind, ArrivalKind::kPoisson);
  EXPECT_EQ(options->arrivals.rate, 2.5);
  EXPECT_EQ(options->arrivals.seed, 4u);
  EXPECT_EQ(options->duration, 30s);
  EXPECT_EQ(options->num_requests, -1);
  EXPECT_EQ(options->warmup_time, 5s);
  EXPECT_EQ(options->input_tokens.stddev, 20);
  EXPECT_EQ(options->headers[0].second, "b");
  EXPECT_EQ(options->headers[1].second, "Bearer k");
}

TEST(Options, AClosedLoopOfAHundredRequestsIsTheDefault) {
  const auto options = ParseOptions({});
  ASSERT_TRUE(options.ok()) << options.status().ToString();
  EXPECT_FALSE(options->open_loop);
  EXPECT_EQ(options->concurrency, 1);
  EXPECT_EQ(options->num_requests, 100);
  EXPECT_EQ(options->url.port, "8000");
  EXPECT_EQ(
      ParseOptions({"--endpoint-type", "kserve-grpc", "-m", "x"})->url.port,
      "8001");
}

TEST(Options, ReadsSweepsShapesAndExtraInputs) {
  const auto options = ParseOptions(
      {"--sweep", "request-rate=1,2.5", "--extra-input", "a:1", "--extra-input",
       "b:text", "--extra-input", "c:{\"d\":[2]}"});
  ASSERT_TRUE(options.ok()) << options.status().ToString();
  EXPECT_TRUE(options->sweep.over_rate);
  EXPECT_TRUE(options->open_loop);
  EXPECT_THAT(options->sweep.values, ElementsAre(1, 2.5));
  EXPECT_EQ(options->extra_inputs[0].second, "1");
  EXPECT_EQ(options->extra_inputs[1].second, "\"text\"");
  EXPECT_EQ(options->extra_inputs[2].second, "{\"d\":[2]}");
  const auto tensors =
      ParseOptions({"--endpoint-type", "kserve", "-m", "x", "--shape",
                    "input:0:1,3,4", "--tensor-format", "json"});
  ASSERT_TRUE(tensors.ok()) << tensors.status().ToString();
  EXPECT_EQ(tensors->shapes[0].first, "input:0") << "names may hold colons";
  EXPECT_THAT(tensors->shapes[0].second, ElementsAre(1, 3, 4));
  EXPECT_FALSE(tensors->binary_tensors);
}

struct WrongCase {
  Args args;
  const char* says;
};

TEST(Options, ErrorsNameTheFlagAndTheRemedy) {
  const WrongCase cases[] = {
      {{"--conurrency", "3"}, "--concurrency"},
      {{"--version"}, "there is no flag --version (see --help)"},
      {{"--concurrency", "0"}, "from 1 to 60000"},
      {{"--concurrency", "2x"}, "'2x'"},
      {{"--concurrency", "2", "--request-rate", "3"}, "--max-connections"},
      {{"--concurrency", "2", "--concurrency", "3"}, "--concurrency"},
      {{"--arrival", "poisson"}, "--request-rate"},
      {{"--arrival", "uniform", "--request-rate", "3"}, "'uniform'"},
      {{"--arrival", "trace"}, "--dataset"},
      {{"--arrival", "trace", "--dataset", "f", "--request-rate", "1"},
       "--trace-speed"},
      {{"--max-connections", "3"}, "open loop"},
      {{"--duration", "30"}, "unit"},
      {{"--duration", "0s"}, "must be longer"},
      {{"--endpoint-type", "openai"}, "'openai'"},
      {{"--endpoint-type", "embeddings", "--streaming"}, "no token stream"},
      {{"--endpoint-type", "kserve"}, "--model"},
      {{"--endpoint-type", "torchserve", "-m", "x"}, "--data"},
      {{"--endpoint-type", "kserve", "-m", "x", "--input-tokens", "3"},
       "--shape"},
      {{"--endpoint", "v1/x"}, "begin with /"},
      {{"--slo", "ttft:p99:1s"}, "--streaming"},
      {{"--slo", "x"}, "metric:statistic:limit"},
      {{"--input-tokens", "0"}, "--input-tokens"},
      {{"--dataset", "f", "--input-tokens", "5"}, "leave out --dataset"},
      {{"--turns", "2", "--endpoint-type", "completions"}, "chat"},
      {{"--sweep", "concurrency=1,2", "--concurrency", "3"}, "--sweep"},
      {{"--sweep", "concurrency=2,1"}, "must rise"},
      {{"--sweep", "users=1"}, "request-rate="},
      {{"--shape", "1,2"}, "name:sizes"},
      {{"--header", "novalue"}, "name:value"},
      {{"--client-cpus", "1023"}, "may not use"},
      {{"--url", "ftp://a"}, "https"},
      {{"--url", "https://a", "--cacert", "nowhere"}, "cannot be read"},
      {{"stray"}, "positional"},
      {{"--model"}, "required argument"},
      {{"--max-error-rate", "2"}, "from 0 to 1"},
  };
  for (const WrongCase& wrong : cases) {
    const auto options = ParseOptions(wrong.args);
    ASSERT_FALSE(options.ok()) << wrong.args[0];
    EXPECT_EQ(options.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(options.status().message()), HasSubstr(wrong.says))
        << wrong.args[0];
  }
}

TEST(Options, HelpNamesEveryFlagGroup) {
  const std::string help = HelpText();
  for (const char* flag : {"--url", "--request-rate", "--input-tokens", "--slo",
                           "--sweep", "--html", "compare"}) {
    EXPECT_THAT(help, HasSubstr(flag));
  }
  EXPECT_TRUE(ParseOptions({"--help"})->help);
}

}  // namespace
}  // namespace millrace::loadtest
