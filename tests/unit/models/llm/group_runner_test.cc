// Models that are cut among the ranks of a group against the same models whole.
#include "models/llm/group_runner.h"

#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "models/llm/teacher_forcing.h"
#include "tests/data/tiny_gguf.h"
#include "tests/support/temp_path.h"
#include "tests/support/vector_isa.h"
#include "tests/unit/models/llm/rank_threads.h"
#include "tests/unit/models/llm/step_driver.h"

namespace millrace::models {
namespace {

// Beyond windows and past a page.
std::vector<int32_t> SomeTokens() {
  std::vector<int32_t> tokens;
  uint64_t state = 11;
  for (int i = 0; i < 90; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    tokens.push_back(static_cast<int32_t>((state >> 33) % 250));
  }
  return tokens;
}

std::vector<float> LogitsOfAll(LlmModel& model, int32_t chunk) {
  std::vector<float> all;
  const Status status = ScoreTokens(
      model, SomeTokens(), chunk, [&](int32_t, std::span<const float> logits) {
        all.insert(all.end(), logits.begin(), logits.end());
      });
  EXPECT_TRUE(status.ok()) << status.ToString();
  return all;
}

// The greatest difference, as a part of the greatest logit.
double Distance(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0, difference = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    most = std::max(most, std::abs(double{a[i]}));
    difference = std::max(difference, std::abs(double{a[i]} - double{b[i]}));
  }
  return difference / most;
}

LlmOptions OptionsFor(const std::string& compute_dtype, int threads) {
  LlmOptions options = TinyOptions(threads);
  options.settings.max_model_len = 128;
  options.settings.compute_dtype = compute_dtype;
  options.settings.kv_cache_dtype = "f32";
  // Ranks pinned to one CPU would wait for each other's time slices.
  if (threads == 1) options.cpus.clear();
  return options;
}

// Sums in another order: a few roundings of 2^-24 in each of up to 100 terms
// and a handful of layers.
constexpr double kF32 = 2e-5;

class GroupRunnerFamily
    : public testing::TestWithParam<std::tuple<const char*, int>> {};

TEST_P(GroupRunnerFamily, HasTheLogitsOfOneRank) {
  const std::string path = "tests/data/" + std::string(std::get<0>(GetParam()));
  StatusOr<LlmModel> one = LoadLlm(path, OptionsFor("f32", 1));
  ASSERT_TRUE(one.ok()) << one.status().ToString();
  const std::vector<float> expected = LogitsOfAll(*one, 64);
  RankThreads ranks(std::get<1>(GetParam()));
  StatusOr<LlmModel> model = ranks.Load(path, OptionsFor("f32", 1));
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  const std::vector<float> logits = LogitsOfAll(*model, 64);
  EXPECT_LT(Distance(logits, expected), kF32);
  // One bit pattern, whatever the steps are.
  EXPECT_EQ(LogitsOfAll(*model, 23), logits);
}

INSTANTIATE_TEST_SUITE_P(
    Folders, GroupRunnerFamily,
    testing::Combine(testing::Values("hf_gemma2", "hf_gemma3", "hf_granite",
                                     "hf_llama", "hf_llama_yarn",
                                     "hf_ministral", "hf_mistral", "hf_phi3",
                                     "hf_qwen3", "hf_smollm3", "hf_starcoder2"),
                     testing::Values(2)),
    [](const auto& each) { return std::get<0>(each.param); });
INSTANTIATE_TEST_SUITE_P(OfFour, GroupRunnerFamily,
                         testing::Combine(testing::Values("hf_gpt2"),
                                          testing::Values(2, 4)),
                         [](const auto& each) {
                           return std::to_string(std::get<1>(each.param));
                         });

class GroupRunnerType : public testing::TestWithParam<GgmlType> {
 protected:
  GroupRunnerType() : path_(TempPath("group.gguf")) {
    TinyModel tiny;
    tiny.architecture = "qwen2";
    tiny.type = GetParam();
    tiny.tied = false;
    tiny.hidden = 128;
    tiny.heads = 8;
    tiny.kv_heads = 4;
    tiny.head_dim = 32;
    tiny.ffn = 256;
    EXPECT_TRUE(WriteTinyGguf(tiny, path_));
  }
  const std::string path_;
};

// Of integer weights a rounding of activations to int8 may fall to the other
// side where a sum differs in its last bit: one step is 1/127 of the greatest
// in its block of 32, or with AMX to bf16, 1/256 of each. 3.4e-3 was seen.
TEST_P(GroupRunnerType, IsNearOneRankAndTheSameOnEveryRun) {
  for (const char* compute : {"f32", "auto"}) {
    StatusOr<LlmModel> one = LoadLlm(path_, OptionsFor(compute, 1));
    ASSERT_TRUE(one.ok()) << one.status().ToString();
    const std::vector<float> expected = LogitsOfAll(*one, 64);
    const double near = compute == std::string("f32") ? kF32 : 2e-2;
    for (const int32_t size : {2, 4}) {
      std::vector<float> first;
      for (int run = 0; run < 2; ++run) {
        RankThreads ranks(size);
        StatusOr<LlmModel> model = ranks.Load(path_, OptionsFor(compute, 1));
        ASSERT_TRUE(model.ok()) << model.status().ToString();
        const std::vector<float> logits = LogitsOfAll(*model, 64);
        EXPECT_LT(Distance(logits, expected), near) << compute << size;
        if (run == 0) first = logits;
        EXPECT_EQ(logits, first) << compute << size;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, GroupRunnerType,
                         testing::Values(GgmlType::kF32, GgmlType::kQ8_0,
                                         GgmlType::kQ4_0, GgmlType::kQ4_1),
                         [](const auto& each) {
                           return std::string(InfoOf(each.param).name);
                         });

std::string Tiny() {
  const std::string path = TempPath("group_tiny.gguf");
  TinyModel tiny;
  tiny.ffn = 128;
  tiny.head_dim = 32;
  EXPECT_TRUE(WriteTinyGguf(tiny, path));
  return path;
}

TEST(GroupRunner, RunsRequestsTheSameHoweverTheyAreBatched) {
  std::vector<DriverRequest> requests;
  for (int32_t i = 0; i < 5; ++i) {
    DriverRequest request;
    for (int32_t k = 0; k < 9 + 17 * i; ++k) {
      request.prompt.push_back((k * 31 + i) % 250);
    }
    request.max_tokens = 6;
    request.sampling.seed = static_cast<uint64_t>(i);
    request.sampling.logprobs = true;
    requests.push_back(request);
  }
  RankThreads ranks(2);
  StatusOr<LlmModel> model = ranks.Load(Tiny(), OptionsFor("auto", 1));
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  const auto expected = Drive(*model->runner, requests, {.chunk = 512});
  EXPECT_EQ(Drive(*model->runner, requests,
                  {.chunk = 5, .page_seed = 3, .preempt_every = 4}),
            expected);
  EXPECT_EQ(Drive(*model->runner, {requests[2]}, {.chunk = 512})[0],
            expected[2]);
}

TEST(GroupRunner, TeamsOfTwoThreadsGiveTheBitsOfOne) {
  const std::string path = Tiny();
  std::vector<float> logits[2];
  for (const int threads : {1, 2}) {
    RankThreads ranks(2);
    StatusOr<LlmModel> model = ranks.Load(path, OptionsFor("auto", threads));
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    logits[threads - 1] = LogitsOfAll(*model, 64);
  }
  EXPECT_EQ(logits[0], logits[1]);
}

TEST(GroupRunner, SumsOverTheRanksAreAPhaseOfTheirOwn) {
  RankThreads ranks(2);
  StatusOr<LlmModel> model = ranks.Load(Tiny(), OptionsFor("auto", 1));
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  LogitsOfAll(*model, 64);
  const StepAccount account = model->runner->account();
  EXPECT_GT(account.seconds[static_cast<size_t>(StepPhase::kAllReduce)], 0);
}

TEST(GroupRunner, OthersEndWithRankZero) {
  RankThreads ranks(2);
  {
    StatusOr<LlmModel> model = ranks.Load(Tiny(), OptionsFor("auto", 1));
    ASSERT_TRUE(model.ok()) << model.status().ToString();
  }
  ranks.Join();
  EXPECT_TRUE(ranks.ends()[1].ok()) << ranks.ends()[1].ToString();
}

TEST(GroupRunner, AFailureOfOneRankIsEverybodys) {
  RankThreads ranks(2);
  ranks.options_of(1).isa = "of-no-machine";
  const StatusOr<LlmModel> model = ranks.Load(Tiny(), OptionsFor("auto", 1));
  ranks.Join();
  ASSERT_FALSE(model.ok());
  EXPECT_NE(model.status().message().find("rank 1: "), std::string_view::npos)
      << model.status().ToString();
  EXPECT_FALSE(ranks.ends()[1].ok());
}

TEST(GroupRunner, RanksWithOtherKernelsAreRefused) {
  RankThreads ranks(2);
  LlmOptions options = OptionsFor("auto", 1);
  options.isa = kVectorIsa;
  ranks.options_of(1).isa = "scalar";
  const StatusOr<LlmModel> model = ranks.Load(Tiny(), options);
  ranks.Join();
  ASSERT_FALSE(model.ok());
  EXPECT_NE(model.status().message().find("kernels scalar"),
            std::string_view::npos)
      << model.status().ToString();
  EXPECT_EQ(ranks.ends()[1].message(), model.status().message());
}

TEST(GroupRunner, AGroupOfAnotherSizeThanTheSettingsSayIsRefused) {
  LlmOptions options = OptionsFor("auto", 1);
  options.settings.tensor_parallel_size = 2;
  const StatusOr<LlmModel> model = LoadLlm(Tiny(), options);
  ASSERT_FALSE(model.ok());
  EXPECT_NE(model.status().message().find("the group that loads the model has "
                                          "1 process"),
            std::string_view::npos)
      << model.status().ToString();
}

// A runner that ends as its group does in a step.
TEST(GroupRunner, ALostRankFailsTheStepOnceAndAllThatFollow) {
  auto groups = MakeLocalGroup(2);
  const std::shared_ptr<Group> own = std::move(groups[0]);
  LlmOptions options = OptionsFor("auto", 1);
  options.settings.tensor_parallel_size = 2;
  options.group = own;
  int32_t broken = 0;
  options.on_group_broken = [&broken](const Status&) { ++broken; };
  const std::string path = Tiny();
  std::thread other([&, group = std::shared_ptr<Group>(std::move(groups[1]))] {
    LlmOptions mine = options;
    mine.group = group;
    EXPECT_TRUE(LoadLlm(path, mine).ok());
    mine.group.reset();  // leaves with the thread's own
  });
  StatusOr<LlmModel> model = LoadLlm(path, options);
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  other.join();
  StepBatch batch(model->runner->info().limits);
  for (int i = 0; i < 2; ++i) {
    model->runner->Launch(batch);
    EXPECT_EQ(model->runner->Wait().status().code(), StatusCode::kUnavailable);
  }
  EXPECT_EQ(broken, 1);
}

}  // namespace
}  // namespace millrace::models
