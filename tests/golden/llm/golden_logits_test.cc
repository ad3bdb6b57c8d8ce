// The default model against transformers (f32, eager attention, the same
// weights dequantised): teacher-forced, every stored logit and the log-sum-exp
// of each step within 1e-3. Arithmetic here is f32 throughout; what int8
// activations add is measured by tests/bench/fidelity.sh.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "models/llm/teacher_forcing.h"
#include "tests/unit/models/llm/rank_threads.h"

namespace millrace::models {
namespace {

constexpr double kTolerance = 1e-3;
constexpr int kSteps = 8;
const std::set<std::string> kPrompts = {"one-letter", "hello",      "facts",
                                        "arithmetic", "json",       "japanese",
                                        "repeat",     "chat-france"};

std::string DefaultModel() {
  const char* cache = std::getenv("MILLRACE_CACHE");
  const char* xdg = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::string root =
      cache != nullptr ? cache
      : xdg != nullptr
          ? std::string(xdg) + "/millrace"
          : std::string(home != nullptr ? home : "") + "/.cache/millrace";
  return root + "/models/SmolLM2-135M-Instruct.Q4_1.gguf";
}

double LogSumExp(std::span<const float> x) {
  const double greatest = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (const float value : x) sum += std::exp(value - greatest);
  return greatest + std::log(sum);
}

LlmOptions F32Options() {
  LlmOptions options;
  options.settings.compute_dtype = "f32";
  options.settings.kv_cache_dtype = "f32";
  options.settings.max_model_len = 512;
  options.settings.max_num_seqs = 1;
  return options;
}

void ExpectPresent(const std::string& path) {
  ASSERT_TRUE(std::filesystem::exists(path))
      << "the default model is missing: run deploy/quickstart.sh --once, or "
         "put it at "
      << path;
}

void ExpectGoldenLogits(LlmModel& model) {
  std::ifstream in("tests/golden/llm/logits.json");
  ASSERT_TRUE(in) << "run from the root of the repository";
  const nlohmann::json golden = nlohmann::json::parse(in);

  double worst = 0;
  int steps_seen = 0;
  for (const auto& prompt : golden["prompts"]) {
    if (!kPrompts.contains(prompt["name"])) continue;
    SCOPED_TRACE(prompt["name"].get<std::string>());
    auto tokens = prompt["ids"].get<std::vector<int32_t>>();
    const auto first = static_cast<int32_t>(tokens.size()) - 1;
    for (int i = 0; i + 1 < kSteps; ++i) tokens.push_back(prompt["greedy"][i]);
    const Status status = ScoreTokens(
        model, tokens, 0,
        [&](int32_t position, std::span<const float> logits) {
          const auto& step = prompt["steps"][position - first];
          ++steps_seen;
          const double lse = step["lse"];
          EXPECT_NEAR(LogSumExp(logits), lse, kTolerance);
          for (const auto& entry : step["top"]) {
            const double stored = entry[1];
            const double ours = logits[entry[0].get<size_t>()];
            EXPECT_NEAR(ours, stored, kTolerance) << "position " << position;
            worst = std::max(worst, std::fabs(ours - stored));
          }
        },
        first);
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
  EXPECT_EQ(steps_seen, static_cast<int>(kPrompts.size()) * kSteps);
  std::printf("greatest difference of a logit: %.2e\n", worst);
}

TEST(GoldenLogits, F32EngineAgreesWithTransformers) {
  ASSERT_NO_FATAL_FAILURE(ExpectPresent(DefaultModel()));
  LlmOptions options = F32Options();
  options.cpus = {0, 1};
  StatusOr<LlmModel> model = LoadLlm(DefaultModel(), options);
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  ExpectGoldenLogits(*model);
}

// As many ranks as it has KV heads.
TEST(GoldenLogits, ThreeRanksAgreeWithTransformers) {
  ASSERT_NO_FATAL_FAILURE(ExpectPresent(DefaultModel()));
  RankThreads ranks(3);
  StatusOr<LlmModel> model = ranks.Load(DefaultModel(), F32Options());
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  ExpectGoldenLogits(*model);
}

}  // namespace
}  // namespace millrace::models
