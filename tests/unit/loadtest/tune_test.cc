#include "loadtest/tune.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "loadtest/load_search.h"
#include "loadtest/server_process.h"
#include "loadtest/setting_search.h"
#include "loadtest/tune_options.h"
#include "tests/support/temp_path.h"

namespace millrace::loadtest {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// A server that carries `capacity` requests at once within its objectives.
LoadResult Search(LoadRange range, double capacity,
                  std::vector<double>* loads = nullptr) {
  return FindHighestLoad(range, [&](double load) -> std::optional<LoadPoint> {
    if (loads != nullptr) loads->push_back(load);
    return LoadPoint{load, load * 10, load <= capacity};
  });
}

TEST(LoadSearch, DoublesThenBisects) {
  std::vector<double> loads;
  const LoadResult found = Search({}, 11, &loads);
  ASSERT_TRUE(found.best);
  EXPECT_EQ(found.best->load, 11);
  EXPECT_THAT(loads, ElementsAre(1, 2, 4, 8, 16, 11, 13, 12));
}

TEST(LoadSearch, GoesDownFromAStartThatIsTooHigh) {
  const LoadResult found = Search({.start = 64}, 5);
  ASSERT_TRUE(found.best);
  EXPECT_EQ(found.best->load, 5);
}

TEST(LoadSearch, NoLoadMeetsTheObjectives) {
  const LoadResult found = Search({.start = 4}, 0);
  EXPECT_FALSE(found.best);
  EXPECT_EQ(found.num_measured, 3) << "4, 2, 1";
}

TEST(LoadSearch, RatesAreFoundWithinThePrecision) {
  const LoadResult found =
      Search({.start = 1, .least = 0.01, .most = 1e6, .whole = false}, 37.3);
  ASSERT_TRUE(found.best);
  EXPECT_LE(found.best->load, 37.3);
  EXPECT_GT(found.best->load, 37.3 / 1.11);
}

TEST(LoadSearch, EndsWhereTheScoreNoLongerGrows) {
  const LoadResult found =
      FindHighestLoad({}, [](double load) -> std::optional<LoadPoint> {
        return LoadPoint{load, std::min(load, 4.0), true};
      });
  EXPECT_EQ(found.best->load, 4);
  EXPECT_EQ(found.num_measured, 5) << "1, 2, 4, and 8 and 16 without growth";
}

TEST(LoadSearch, GivesUpOnWhatCannotBeatTheBest) {
  EXPECT_EQ(Search({.start = 8, .beat = 80}, 1).num_measured, 2) << "8, 4";
  const LoadResult flat = FindHighestLoad(
      {.start = 8, .beat = 80}, [](double load) -> std::optional<LoadPoint> {
        return LoadPoint{load, 50, true};
      });
  EXPECT_EQ(flat.num_measured, 2);
}

TEST(LoadSearch, EndsWhenNothingCanBeMeasured) {
  const LoadResult found = FindHighestLoad(
      {}, [](double) -> std::optional<LoadPoint> { return std::nullopt; });
  EXPECT_TRUE(found.ended_early);
  EXPECT_FALSE(found.best);
}

// Two settings of five values; the best of 8 stands at {3, 1}.
std::optional<double> Peak(const Choice& choice) {
  return 10 - std::abs(static_cast<double>(choice[0]) - 3) -
         std::abs(static_cast<double>(choice[1]) - 1);
}

std::vector<Setting> TwoSettings() {
  const std::vector<std::string> values = {"1", "2", "4", "8", "16"};
  return {{"a", values, 0}, {"b", values, 4}};
}

TEST(SettingSearch, FindsThePeakOfTwoSettings) {
  int num_tried = 0;
  const Choice best = SearchSettings(
      TwoSettings(), Peak({0, 4}),
      [&](const Choice& choice, double) {
        ++num_tried;
        return Peak(choice);
      },
      [] { return false; });
  EXPECT_THAT(best, ElementsAre(3, 1));
  EXPECT_LE(num_tried, 12) << "of 25";
}

TEST(SettingSearch, FailedCandidatesAreNotTakenAndNotTriedAgain) {
  std::vector<Choice> tried;
  const Choice best = SearchSettings(
      TwoSettings(), 5.0,
      [&](const Choice& choice, double) -> std::optional<double> {
        EXPECT_THAT(tried, Not(testing::Contains(choice)));
        tried.push_back(choice);
        return std::nullopt;
      },
      [] { return false; });
  EXPECT_THAT(best, ElementsAre(0, 4));
  EXPECT_EQ(tried.size(), 4u) << "each setting in two strides";
}

TEST(SettingSearch, EndsWhenTheTimeIsOver) {
  SearchSettings(
      TwoSettings(), 5.0,
      [](const Choice&, double) -> std::optional<double> {
        ADD_FAILURE() << "nothing may be tried";
        return std::nullopt;
      },
      [] { return true; });
}

constexpr char kPrinted[] =
    "http_port: 0                            # flag\n"
    "api_key: \"***\"                          # flag\n"
    "threads: 0                              # default\n"
    "max_num_seqs: 48                        # flag\n"
    "max_num_batched_tokens: 512             # default\n"
    "kv_cache_memory_bytes: 1GiB             # file\n"
    "max_queue_delay: 5ms                    # environment\n"
    "max_batch_size: 0                       # default\n"
    "instance_count: 1                       # default\n"
    "models:\n"
    "  - path: \"a # b.onnx\"\n";

TEST(SettingSearch, ReadsTheConfigurationThatTheServerPrints) {
  EXPECT_EQ(SettingOf(kPrinted, "max_num_seqs"), "48");
  EXPECT_EQ(SettingOf(kPrinted, "api_key"), "***");
  EXPECT_EQ(SettingOf(kPrinted, "num_seqs"), std::nullopt);
  EXPECT_EQ(SettingNumber("5ms"), 0.005);
  EXPECT_EQ(SettingNumber("1GiB"), 0x1p30);
  EXPECT_EQ(SettingNumber("auto"), std::nullopt);
  EXPECT_EQ(SettingNumber("5 parsecs"), std::nullopt);
}

TEST(SettingSearch, BasesStandAmongTheUsualValues) {
  const auto llm = UsualSettings(false, kPrinted, {4, 8 * 0x1p30});
  ASSERT_EQ(llm.size(), 4u);
  EXPECT_EQ(llm[0].name, "max_num_batched_tokens");
  EXPECT_EQ(llm[0].values[llm[0].base], "512");
  EXPECT_EQ(llm[1].values[llm[1].base], "48");
  EXPECT_EQ(llm[1].values[llm[1].base + 1], "64");
  EXPECT_THAT(llm[2].values, ElementsAre("256MiB", "512MiB", "1GiB"));
  EXPECT_EQ(llm[2].base, 2u);
  EXPECT_THAT(llm[3].values, ElementsAre("1", "2", "0")) << "0: all 4";
  const auto graph = UsualSettings(true, kPrinted, {1, 0x1p30});
  EXPECT_EQ(graph[0].values[graph[0].base], "0") << "in place of 32";
  EXPECT_THAT(graph[1].values, ElementsAre("0s", "200us", "1ms", "5ms"));
  EXPECT_EQ(graph[1].base, 3u);
}

TEST(SettingSearch, SettingsToTryAreChecked) {
  const auto setting = ParseTry("max-num-seqs=16,48,96", kPrinted);
  ASSERT_TRUE(setting.ok()) << setting.status().ToString();
  EXPECT_EQ(setting->name, "max_num_seqs");
  EXPECT_EQ(setting->base, 1u);
  EXPECT_THAT(ParseTry("max_num_seqs=4,8", kPrinted)->values,
              ElementsAre("48", "4", "8"));
  EXPECT_THAT(std::string(ParseTry("seqs=4", kPrinted).status().message()),
              HasSubstr("'seqs', which is no setting"));
  EXPECT_FALSE(ParseTry("max_num_seqs=", kPrinted).ok());
}

TEST(Tune, TheFileHoldsWhatDiffersFromTheDefaults) {
  EXPECT_EQ(MinimalConfig(kPrinted),
            "http_port: 0\n"
            "# api_key: not copied, it is a secret\n"
            "max_num_seqs: 48\n"
            "kv_cache_memory_bytes: 1GiB\n"
            "max_queue_delay: 5ms\n"
            "models:\n"
            "  - path: \"a # b.onnx\"\n");
}

TEST(Tune, BetterMeansBetterInEveryRound) {
  EXPECT_TRUE(ClearlyBetter({10, 11, 12}, {12.5, 13, 14}));
  EXPECT_FALSE(ClearlyBetter({10, 11, 12}, {11.9, 15, 16}));
  EXPECT_FALSE(ClearlyBetter({}, {1}));
}

TEST(Tune, AFinalistThatFailsInARoundLoses) {
  const auto decide = [](bool given_fails, bool other_fails) {
    TuneResult result;
    result.candidates.resize(3);
    result.finalist = 2;
    Candidate& given = result.candidates[0];
    Candidate& other = result.candidates[2];
    given.best = other.best = LoadPoint{4, 7, true};
    given.goodput = {7.3, given_fails ? 0 : 7.2, 7.4};
    other.goodput = {7.5, other_fails ? 0 : 7.6, 7.5};
    if (!given_fails && !other_fails) other.goodput[0] = 7.35;
    if (given_fails) given.failure = "no memory";
    if (other_fails) other.failure = "no memory";
    DecideRounds(result);
    return result;
  };
  const TuneOptions options;
  TuneResult result = decide(false, false);
  EXPECT_EQ(result.best, 0u) << "7.35 is below 7.4";
  EXPECT_TRUE(result.met);
  result = decide(true, false);
  EXPECT_EQ(result.best, 2u);
  EXPECT_TRUE(result.met);
  EXPECT_THAT(TuneVerdict(options, result),
              HasSubstr("the configuration given failed; this one did not"));
  result = decide(false, true);
  EXPECT_EQ(result.best, 0u);
  EXPECT_TRUE(result.met);
  EXPECT_THAT(TuneVerdict(options, result),
              HasSubstr("the other finalist failed"));
  result = decide(true, true);
  EXPECT_FALSE(result.met);
  EXPECT_THAT(TuneVerdict(options, result), HasSubstr("Both finalists failed"));
}

TEST(Tune, TheVerdictNamesANoisyWinner) {
  TuneOptions options;
  TuneResult result;
  result.met = true;
  result.candidates.resize(2);
  for (Candidate& candidate : result.candidates) {
    candidate.best = LoadPoint{4, 100, true};
    candidate.goodput = {100, 102};
  }
  result.candidates[1].changes = {{"threads", "2"}};
  result.finalist = 1;
  EXPECT_THAT(TuneVerdict(options, result), HasSubstr("within noise"));
  EXPECT_THAT(TuneVerdict(options, result),
              HasSubstr("threads 2: 101.00 requests/s within the SLO (100.00 "
                        "to 102.00 in 2 rounds) at concurrency 4"));
  const std::string file =
      TunedFile(options, result, "v", "max_num_seqs: 48\n");
  EXPECT_TRUE(file.ends_with("\nmax_num_seqs: 48\n"));
  EXPECT_THAT(TuneRow(1, result.candidates[1]), HasSubstr("threads 2; met"));
}

TEST(Tune, TheFileHoldsNoSecret) {
  TuneResult result;
  result.candidates.resize(1);
  for (const std::vector<std::string>& spelled :
       std::vector<std::vector<std::string>>{
           {"--api-key", "sk-1", "-H", "X-Token: sk-1", "--server-command",
            "millrace serve 'm 1.gguf' --api_key sk-1 --threads 2"},
           {"--api-key=sk-1", "--header=X-Token: sk-1", "-HX-Token: sk-1",
            "--server-command=millrace serve 'm 1.gguf' --api-key=sk-1 "
            "--threads 2"},
           {"--server-command",
            "env MILLRACE_API_KEY=sk-1 millrace serve 'm 1.gguf' --threads 2"},
           {"--server-command=docker run -eMILLRACE_API_KEY=sk-1 "
            "--env=MILLRACE_API_KEY='sk-1 and more sk-1' image serve "
            "'m 1.gguf' --threads 2"}}) {
    TuneOptions options;
    options.args = spelled;
    options.args.insert(options.args.end(), {"--slo", "latency:p99:1s"});
    options.server = {"millrace", "serve", "m 1.gguf", "--api-key", "sk-1"};
    std::string file = TunedFile(options, result, "v", kPrinted);
    EXPECT_THAT(file, Not(HasSubstr("sk-1")));
    constexpr std::string_view kNextLine = "\n#   ";  // of a long comment
    for (size_t at; (at = file.find(kNextLine)) != file.npos;) {
      file.replace(at, kNextLine.size(), " ");
    }
    EXPECT_THAT(file, HasSubstr("# Found by: millrace-loadtest tune "));
    EXPECT_THAT(file, HasSubstr("--threads 2"));
    EXPECT_THAT(file, HasSubstr("--slo latency:p99:1s"));
    EXPECT_THAT(file, HasSubstr("'m 1.gguf' --api-key '***' (v)"));
  }
  EXPECT_THAT(
      HideSecrets({"env", "MILLRACE_API_KEY=a b", "MILLRACE_THREADS=2", "x"},
                  {"api_key"}),
      ElementsAre("env", "MILLRACE_API_KEY=***", "MILLRACE_THREADS=2", "x"));
}

TEST(TuneOptions, CommandsAreCutIntoWords) {
  EXPECT_THAT(*SplitCommand(R"(millrace  serve 'a b' "c\"d" e\ f '')"),
              ElementsAre("millrace", "serve", "a b", "c\"d", "e f", ""));
  EXPECT_FALSE(SplitCommand("millrace 'serve").ok());
}

TEST(TuneOptions, WhatIsTunedIsReadFromTheCommand) {
  const auto options = ParseTuneOptions(
      {"--server-command", "/opt/millrace serve m.onnx --threads 2", "--budget",
       "5m", "--slo", "latency:p99:50ms", "--batch-size", "4"});
  ASSERT_TRUE(options.ok()) << options.status().ToString();
  EXPECT_THAT(options->server, ElementsAre("/opt/millrace", "serve", "m.onnx",
                                           "--threads", "2"));
  EXPECT_TRUE(options->graph);
  EXPECT_EQ(options->load.endpoint, EndpointType::kKserve);
  EXPECT_EQ(options->load.duration, std::chrono::seconds(2));
  EXPECT_EQ(options->load.batch_size, 4);
  EXPECT_THAT(options->args, testing::Contains("--batch-size"));
}

TEST(TuneOptions, AModelFileIsTakenHoweverItsFlagIsSpelled) {
  const std::string file = TempPath("tuned.onnx");
  ASSERT_TRUE(WriteFile(file, "").ok());
  for (const std::vector<std::string>& spelled :
       std::vector<std::vector<std::string>>{{"-m", file},
                                             {"-m" + file},
                                             {"--model", file},
                                             {"--model=" + file}}) {
    std::vector<std::string> args = {"--server", "x", "--slo",
                                     "latency:p99:1s"};
    args.insert(args.end(), spelled.begin(), spelled.end());
    const auto options = ParseTuneOptions(args);
    ASSERT_TRUE(options.ok()) << options.status().ToString();
    EXPECT_THAT(options->server, ElementsAre("x", "serve", file));
    EXPECT_TRUE(options->graph) << spelled[0];
    EXPECT_FALSE(options->model_named) << "the server says its name";
  }
  std::remove(file.c_str());
  const auto named =
      ParseTuneOptions({"--server-command", "x serve", "--slo",
                        "latency:p99:1s", "--model=mine", "-n5"});
  ASSERT_TRUE(named.ok()) << named.status().ToString();
  EXPECT_TRUE(named->model_named);
  EXPECT_EQ(named->load.model, "mine");
  EXPECT_EQ(named->load.num_requests, 5);
  EXPECT_EQ(named->load.duration.count(), 0);
}

TEST(TuneOptions, WrongFlagsNameTheRemedy) {
  const auto error = [](std::vector<std::string> args) {
    args.insert(args.begin(), {"--server-command", "x serve"});
    return std::string(ParseTuneOptions(args).status().message());
  };
  EXPECT_THAT(error({}), HasSubstr("tune needs --slo"));
  EXPECT_THAT(error({"--url", "http://x"}), HasSubstr("starts the server"));
  EXPECT_THAT(error({"--concurrency=4"}), HasSubstr("--search concurrency"));
  EXPECT_THAT(error({"--search", "x"}), HasSubstr("concurrency or"));
  EXPECT_THAT(error({"--budget"}), HasSubstr("needs a value"));
  EXPECT_THAT(std::string(ParseTuneOptions({"-m", "/nope"}).status().message()),
              HasSubstr("no model file '/nope'"));
}

// ---- processes --------------------------------------------------------------

using std::chrono::seconds;

std::vector<std::string> Shell(std::string script) {
  return {"/bin/sh", "-c", std::move(script)};
}

TEST(ServerProcess, SaysWhyAServerDidNotStart) {
  StopSignals stop;
  const auto server = ServerProcess::Start(
      Shell("echo '{\"event\": \"x\"}' >&2; echo no memory >&2; exit 3"),
      seconds(10), stop);
  EXPECT_EQ(server.status().message(),
            "the server ended with status 3: no memory");
  EXPECT_THAT(
      std::string(
          ServerProcess::Start({"/nope"}, seconds(9), stop).status().message()),
      HasSubstr("/nope: cannot be started: No such file"));
}

TEST(ServerProcess, AServerThatIsNeverReadyIsKilled) {
  StopSignals stop;
  const auto server = ServerProcess::Start(Shell("sleep 60"),
                                           std::chrono::milliseconds(50), stop);
  EXPECT_EQ(server.status().code(), StatusCode::kDeadlineExceeded);
}

TEST(ServerProcess, IsReadyWhenItSaysSoAndItsDeathIsSeen) {
  StopSignals stop;
  const auto server = ServerProcess::Start(
      Shell(
          "echo '{\"event\": \"ready\", \"http_port\": 81, \"grpc_port\": 82}'"
          " >&2; sleep 0.2; kill -9 $$"),
      seconds(10), stop);
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  EXPECT_EQ((*server)->http_port(), 81);
  EXPECT_EQ((*server)->grpc_port(), 82);
  EXPECT_TRUE((*server)->Running().ok());
  while ((*server)->Running().ok()) {
    stop.Wait(std::chrono::milliseconds(10));
  }
  EXPECT_THAT(std::string((*server)->Running().message()),
              HasSubstr("was ended by signal 9"));
}

TEST(ServerProcess, OutputOfACommandIsRead) {
  EXPECT_EQ(*RunCommand(Shell("echo a; echo b >&2")), "a\n");
  EXPECT_THAT(
      std::string(RunCommand(Shell("echo no >&2; exit 2")).status().message()),
      HasSubstr("ended with status 2: no"));
}

}  // namespace
}  // namespace millrace::loadtest
