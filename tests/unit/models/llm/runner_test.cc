// The runner against a double-precision llama, for every weight format, both
// ways of computing, odd shapes and both families.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "models/llm/families.h"
#include "models/llm/llm_plan.h"
#include "models/llm/teacher_forcing.h"
#include "tests/data/tiny_gguf.h"
#include "tests/support/temp_path.h"
#include "tests/unit/models/llm/reference_llama.h"
#include "tests/unit/models/llm/step_driver.h"
#include "tests/unit/models/llm/turns_grammar.h"

namespace millrace::models {
namespace {

struct Case {
  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

  std::string name;
  TinyModel model;
  std::string compute = "f32";
  // RMS error of the logits over their RMS. Sums of ~100 f32 products differ
  // from exact ones by ~1e-6, a few layers deep. Rounding a row to int8 moves
  // it by about 1 % (a step of 1/127 of a block's greatest value, uniform),
  // and nine such roundings in a row add up to 3 %. Rounding to bf16, where the
  // table does so, moves a value by up to 0.4 %, 0.2 % RMS: 0.6 % in all.
  double tolerance = 1e-5;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const GgmlType type :
       {GgmlType::kF32, GgmlType::kF16, GgmlType::kBF16, GgmlType::kQ8_0,
        GgmlType::kQ4_0, GgmlType::kQ4_1}) {
    Case c{.name = std::string(InfoOf(type).name), .model = {}};
    c.model.type = c.model.embedding_type = type;
    cases.push_back(c);
    c.name += "_auto";
    c.compute = "auto";
    if (InfoOf(type).block_values == 32) c.tolerance = 0.05;
    if (type == GgmlType::kBF16) c.tolerance = 0.01;
    cases.push_back(c);
    if (InfoOf(type).block_values != 32) continue;
    // Two of the nine roundings are left, 1 % each; the others are 254 times
    // finer.
    c.name = std::string(InfoOf(type).name) + "_int16";
    c.compute = "int16";
    c.tolerance = 0.02;
    cases.push_back(c);
  }
  // The other formats, as they are served.
  for (const GgmlType type :
       {GgmlType::kQ5_0, GgmlType::kQ5_1, GgmlType::kIQ4_NL, GgmlType::kMXFP4,
        GgmlType::kQ2_K, GgmlType::kQ3_K, GgmlType::kQ4_K, GgmlType::kQ5_K,
        GgmlType::kQ6_K, GgmlType::kIQ4_XS}) {
    Case c{.name = std::string(InfoOf(type).name) + "_auto",
           .model = MakeWideTiny(type),
           .compute = "auto",
           .tolerance = 0.05};
    cases.push_back(c);
  }
  // As files called Q4_K_M are: several formats beside one another.
  Case mixed{.name = "mixed_f32", .model = MakeWideTiny(GgmlType::kQ4_K)};
  mixed.model.embedding_type = GgmlType::kQ6_K;
  cases.push_back(mixed);
  Case qwen{.name = "qwen2", .model = {}};
  qwen.model.architecture = "qwen2";
  cases.push_back(qwen);
  Case odd{.name = "odd_shapes", .model = {}};
  odd.model.type = odd.model.embedding_type = GgmlType::kF32;
  odd.model.tied = false;
  odd.model.hidden = 40;
  odd.model.ffn = 52;
  odd.model.heads = 6;
  odd.model.kv_heads = 2;
  odd.model.layers = 3;
  cases.push_back(odd);
  Case window{.name = "sliding_window", .model = {}};
  window.model.sliding_window = 6;
  cases.push_back(window);
  Case wide{.name = "one_kv_head", .model = {}};
  wide.model.heads = 8;
  wide.model.kv_heads = 1;
  wide.model.head_dim = 32;
  cases.push_back(wide);
  return cases;
}

class RunnerAgainstReference : public testing::TestWithParam<Case> {};

TEST_P(RunnerAgainstReference, EveryLogit) {
  const Case& c = GetParam();
  const std::string path = TempPath("runner_" + std::string(c.name) + ".gguf");
  ASSERT_TRUE(WriteTinyGguf(c.model, path));
  LlmOptions options = TinyOptions(2);
  options.settings.compute_dtype = c.compute;
  options.settings.kv_cache_dtype = "f32";
  StatusOr<LlmModel> model = LoadLlm(path, options);
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  const auto source = OpenModelSource(path);
  ASSERT_TRUE(source.ok());
  const StatusOr<LlmPlan> plan = PlanLlm(**source);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();

  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 20; ++i) tokens.push_back(3 + i * 37 % 270);
  const auto expected = ReferenceLogits(plan->config, plan->tensors, tokens);
  double error = 0;
  double size = 0;
  int32_t next = 0;
  const Status status = ScoreTokens(
      *model, tokens, 7, [&](int32_t position, std::span<const float> logits) {
        ASSERT_EQ(position, next++);
        ASSERT_EQ(logits.size(), expected[position].size());
        for (size_t i = 0; i < logits.size(); ++i) {
          error += std::pow(logits[i] - expected[position][i], 2);
          size += std::pow(expected[position][i], 2);
        }
      });
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(next, 20);
  EXPECT_LT(std::sqrt(error / size), c.tolerance);
  EXPECT_EQ(std::remove(path.c_str()), 0);
}

INSTANTIATE_TEST_SUITE_P(Shapes, RunnerAgainstReference,
                         testing::ValuesIn(Cases()),
                         [](const auto& test) { return test.param.name; });

TEST(LoadLlm, SaysWhatIsWrongWithAFileOrSetting) {
  const std::string path = TempPath("runner_errors.gguf");
  TinyModel tiny;
  ASSERT_TRUE(WriteTinyGguf(tiny, path));
  LlmOptions options = TinyOptions(1);
  options.settings.max_model_len = 513;
  EXPECT_EQ(LoadLlm(path, options).status().message(),
            "'" + path +
                "': max_model_len is 513, but the model was trained for 512 "
                "tokens; lower it");
  options = TinyOptions(1);
  options.settings.kv_cache_memory_bytes = 1000;
  EXPECT_EQ(LoadLlm(path, options).status().code(),
            StatusCode::kResourceExhausted);
  options = TinyOptions(1);
  options.isa = "mmx";
  EXPECT_FALSE(LoadLlm(path, options).ok());
  options = TinyOptions(1);
  options.settings.kv_cache_dtype = "f8";
  EXPECT_EQ(LoadLlm(path, options).status().field(), "kv_cache_dtype");
  options = TinyOptions(1);
  options.device = "cuda:x";
  EXPECT_EQ(LoadLlm(path, options).status().message(),
            "'" + path +
                "': device is 'cuda:x'; cpu, cuda:0 (or another number) and "
                "auto exist");
  EXPECT_EQ(LoadLlm(path, options).status().field(), "device");
  options = TinyOptions(1);
  options.memory_limit_bytes = 100'000;
  options.settings.kv_cache_memory_bytes = 1 << 20;
  EXPECT_EQ(LoadLlm(path, options).status().code(),
            StatusCode::kResourceExhausted);

  tiny.architecture = "mamba";
  ASSERT_TRUE(WriteTinyGguf(tiny, path));
  EXPECT_EQ(LoadLlm(path, TinyOptions(1)).status().message(),
            "'" + path +
                "': the architecture 'mamba' is not served; these are: " +
                FamilyNames());
  EXPECT_EQ(std::remove(path.c_str()), 0);
}

TEST(Runner, AccountsForItsSteps) {
  const std::string path = TempPath("runner_account.gguf");
  ASSERT_TRUE(WriteTinyGguf(TinyModel{}, path));
  const StatusOr<LlmModel> model = LoadLlm(path, TinyOptions(2));
  EXPECT_EQ(std::remove(path.c_str()), 0);
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  Runner& runner = *model->runner;
  const RunnerRoofline roofline = runner.MeasureRoofline();
  EXPECT_GT(roofline.read_bytes_per_s, 0);
  EXPECT_GT(roofline.macs_per_s, 0);
  EXPECT_GT(roofline.barrier_s, 0);

  DriverRequest request;
  request.prompt = {5, 6, 7};
  request.max_tokens = 1;
  ASSERT_EQ(Drive(runner, {request}, {}).size(), 1u);
  // One step of three rows, of which one sampled: all packed weights (the head
  // is the embedding) and three keys.
  const StepAccount account = runner.account();
  EXPECT_EQ(account.weight_bytes,
            static_cast<double>(model->info.weight_bytes));
  EXPECT_EQ(account.kv_bytes,
            static_cast<double>(3 * model->info.kv_bytes_per_token));
  for (size_t i = 0; i < account.seconds.size(); ++i) {
    const bool of_a_group = i == static_cast<size_t>(StepPhase::kAllReduce);
    EXPECT_EQ(account.seconds[i] > 0, !of_a_group) << i;
  }
  EXPECT_GT(account.macs, 0);
}

TEST(Runner, GrammarsDoNotDependOnTheTeam) {
  const std::string path = TempPath("runner_grammars.gguf");
  ASSERT_TRUE(WriteTinyGguf(TinyModel{}, path));
  std::vector<DriverRequest> requests(7);
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto phase = static_cast<int32_t>(i);
    requests[i].prompt = {5, 6, 7 + phase};
    requests[i].sampling.seed = i;
    if (i == 3) continue;  // draws anything
    requests[i].sampling.grammar = std::make_shared<TurnsGrammar>(phase);
  }
  std::vector<DriverAnswer> expected;
  for (const int threads : {1, 2, 3}) {
    StatusOr<LlmModel> model = LoadLlm(path, TinyOptions(threads));
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    const auto answers = Drive(*model->runner, requests, {.chunk = 512});
    if (threads == 1) expected = answers;
    EXPECT_EQ(answers, expected) << threads << " threads";
    for (size_t i = 0; i < requests.size(); ++i) {
      if (i == 3) continue;
      ASSERT_EQ(answers[i].ids.size(), 8u);
      for (size_t k = 0; k < 8; ++k) {
        EXPECT_EQ(answers[i].ids[k] % 3, static_cast<int32_t>(i + k) % 3);
      }
    }
  }
  EXPECT_EQ(std::remove(path.c_str()), 0);
}

}  // namespace
}  // namespace millrace::models
