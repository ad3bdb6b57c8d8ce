// Every family of tests/data on the GPU, the emulated one or a real one, beside
// the engine on cores, in f32: what differs are orders of sums.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <string>

#include "models/llm/teacher_forcing.h"
#include "tests/cuda_emulation/test_module.h"
#include "tests/unit/models/llm/step_driver.h"

namespace millrace::models {
namespace {

struct Family {
  const char* folder;
  // Llama 4 attends in chunks of 24 and tempers each 16 positions.
  int32_t tokens = 11;
};

class EveryFamilyOnGpu : public testing::TestWithParam<Family> {
 protected:
  EveryFamilyOnGpu() { setenv("MILLRACE_CUDA_MODULE", ModuleFile(), 1); }
  ~EveryFamilyOnGpu() override { unsetenv("MILLRACE_CUDA_MODULE"); }

  static StatusOr<LlmModel> Load(const char* device, bool hidden_rows) {
    LlmOptions options = TinyOptions(1);
    options.device = device;
    options.settings.compute_dtype = "f32";
    options.settings.kv_cache_dtype = "f32";
    options.settings.max_num_batched_tokens = 32;
    options.settings.max_num_seqs = 2;
    options.hidden_rows = hidden_rows;
    return LoadLlm(std::string("tests/data/") + GetParam().folder, options);
  }
};

std::vector<std::vector<float>> RowsOf(LlmModel& model, int32_t count,
                                       int32_t chunk) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < count; ++i) {
    tokens.push_back(1 + i * 37 % (model.runner->info().vocab_size - 1));
  }
  std::vector<std::vector<float>> rows;
  const Status status =
      ScoreTokens(model, tokens, chunk, [&](int32_t, auto logits) {
        rows.emplace_back(logits.begin(), logits.end());
      });
  EXPECT_TRUE(status.ok()) << status.ToString();
  return rows;
}

// RMS error over RMS.
double Difference(const std::vector<std::vector<float>>& a,
                  const std::vector<std::vector<float>>& b) {
  double error = 0, size = 0;
  EXPECT_EQ(a.size(), b.size());
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    EXPECT_EQ(a[i].size(), b[i].size());
    for (size_t j = 0; j < std::min(a[i].size(), b[i].size()); ++j) {
      error += std::pow(a[i][j] - b[i][j], 2);
      size += std::pow(b[i][j], 2);
    }
  }
  return size > 0 ? std::sqrt(error / size) : 1;
}

TEST_P(EveryFamilyOnGpu, GivesWhatCoresGive) {
  auto on_gpu = Load("cuda:0", false);
  ASSERT_TRUE(on_gpu.ok()) << on_gpu.status().ToString();
  auto on_cpu = Load("cpu", false);
  ASSERT_TRUE(on_cpu.ok()) << on_cpu.status().ToString();
  const int32_t tokens = GetParam().tokens;
  EXPECT_LT(Difference(RowsOf(*on_gpu, tokens, 7), RowsOf(*on_cpu, tokens, 7)),
            1e-4);
}

INSTANTIATE_TEST_SUITE_P(
    Folders, EveryFamilyOnGpu,
    testing::Values(
        Family{"hf_gemma2"}, Family{"hf_gemma3"}, Family{"hf_gpt2"},
        Family{"hf_gpt_neox"}, Family{"hf_gpt_oss"}, Family{"hf_gpt_oss_mxfp4"},
        Family{"hf_granite"}, Family{"hf_llama"}, Family{"hf_llama4", 60},
        Family{"hf_llama_dynamic"}, Family{"hf_llama_yarn"},
        Family{"hf_ministral"}, Family{"hf_mistral"}, Family{"hf_mixtral"},
        Family{"hf_olmo2"}, Family{"hf_olmoe"}, Family{"hf_phi3"},
        Family{"hf_qwen2"}, Family{"hf_qwen2moe"}, Family{"hf_qwen3"},
        Family{"hf_qwen3moe"}, Family{"hf_smollm3"}, Family{"hf_starcoder2"}),
    [](const auto& test) { return std::string(test.param.folder); });

class RowsOnGpu : public EveryFamilyOnGpu {};

TEST_P(RowsOnGpu, HiddenRowsAreThoseOfCores) {
  auto on_gpu = Load("cuda:0", true);
  ASSERT_TRUE(on_gpu.ok()) << on_gpu.status().ToString();
  auto on_cpu = Load("cpu", true);
  ASSERT_TRUE(on_cpu.ok()) << on_cpu.status().ToString();
  const auto rows = RowsOf(*on_gpu, 11, 32);
  EXPECT_EQ(rows.front().size(), static_cast<size_t>(on_gpu->hidden));
  EXPECT_LT(Difference(rows, RowsOf(*on_cpu, 11, 32)), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Folders, RowsOnGpu,
                         testing::Values(Family{"hf_qwen3"}, Family{"hf_gpt2"}),
                         [](const auto& test) {
                           return std::string(test.param.folder);
                         });

}  // namespace
}  // namespace millrace::models
