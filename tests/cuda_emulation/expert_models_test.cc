// Mixtures of experts on the emulated GPU with a way of computing for each
// role: prompts on tensor cores, other rows in int8 or f32. Beside the engine
// on cores, in any batch; and what their steps read.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <string>

#include "tests/cuda_emulation/scored_logits.h"
#include "tests/cuda_emulation/test_module.h"
#include "tests/unit/models/llm/step_driver.h"

namespace millrace::models {
namespace {

class ExpertModelsTest : public testing::Test {
 protected:
  ExpertModelsTest() { setenv("MILLRACE_CUDA_MODULE", ModuleFile(), 1); }
  ~ExpertModelsTest() override { unsetenv("MILLRACE_CUDA_MODULE"); }

  static LlmOptions Options(const std::string& device,
                            const std::string& compute,
                            const std::string& quantize) {
    LlmOptions options = TinyOptions(1);
    options.device = device;
    options.settings.compute_dtype = compute;
    options.settings.quantize = quantize;
    options.settings.kv_cache_dtype = "f32";
    options.settings.max_num_batched_tokens = 64;
    options.settings.max_num_seqs = 5;
    return options;
  }
  static LlmModel MustLoad(const std::string& folder,
                           const LlmOptions& options) {
    return Must(LoadLlm("tests/data/" + folder, options));
  }
};

// Activations are rounded by 2^-12 of them (f16), 2^-9 (bf16) or 2^-8 of a
// block's greatest (int8). The tiny gpt-oss enlarges what is lost more than
// others do, also in f32: by up to 40.
struct Mixture {
  const char* folder;
  const char* quantize;
  double most;  // off logits in f32, of their RMS
};
constexpr Mixture kMixtures[] = {
    {"hf_mixtral", "none", 1e-2},   // BF16
    {"hf_mixtral", "q8_0", 2e-2},   // rows that are kept are int8
    {"hf_qwen2moe", "none", 1e-2},  // a shared expert
    {"hf_gpt_oss", "none", 1e-2},   // F16, biases and a clamped SwiGLU
    {"hf_gpt_oss_mxfp4", "none", 1e-2},
};

TEST_F(ExpertModelsTest, PromptsOnTensorCoresStayNearTheCpu) {
  for (const Mixture& mixture : kMixtures) {
    LlmModel on_gpu =
        MustLoad(mixture.folder, Options("cuda:0", "auto", mixture.quantize));
    LlmModel on_cpu =
        MustLoad(mixture.folder, Options("cpu", "f32", mixture.quantize));
    EXPECT_TRUE(on_gpu.runner->info().kv_depends_on_role);
    const auto logits = AllLogits(on_gpu, SomeTokens(18, 60), 18);
    const double difference =
        Difference(logits, AllLogits(on_cpu, SomeTokens(18, 60), 18));
    EXPECT_LT(difference, mixture.most)
        << mixture.folder << " " << mixture.quantize;
    EXPECT_GT(difference, mixture.most / 1e3) << "computed in f32";
    EXPECT_EQ(logits, AllLogits(on_gpu, SomeTokens(18, 60), 5))
        << "chunks show";
  }
}

// Prompts and completions side by side, in chunks, preempted, in graphs.
TEST_F(ExpertModelsTest, AnswersDoNotDependOnTheBatch) {
  std::vector<DriverRequest> requests;
  for (const int32_t length : {20, 3, 31, 9}) {
    DriverRequest& request = requests.emplace_back();
    request.prompt = SomeTokens(length, 60);
    request.max_tokens = 5;
    request.sampling.temperature = length == 3 ? 1.0f : 0.0f;
    request.sampling.seed = 7;
    request.sampling.logprobs = length == 9;
  }
  for (const Mixture& mixture : kMixtures) {
    LlmModel model =
        MustLoad(mixture.folder, Options("cuda:0", "auto", mixture.quantize));
    const auto together = Drive(*model.runner, requests, {.chunk = 24});
    EXPECT_EQ(Drive(*model.runner, requests,
                    {.chunk = 17, .page_seed = 5, .preempt_every = 7}),
              together)
        << mixture.folder << " " << mixture.quantize;
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(Drive(*model.runner, {requests[i]}, {})[0], together[i]) << i;
    }
  }
}

// Multiply-adds are those of the engine on cores; how many experts were read is
// counted: of one row as many as it uses, of many all of them at most.
TEST_F(ExpertModelsTest, WhatIsReadAndMultipliedIsCounted) {
  for (const char* compute : {"f32", "auto"}) {
    LlmModel on_gpu =
        MustLoad("hf_mixtral", Options("cuda:0", compute, "none"));
    LlmModel on_cpu = MustLoad("hf_mixtral", Options("cpu", "f32", "none"));
    std::vector<double> read;
    for (const int32_t chunk : {1, 18}) {
      AllLogits(on_gpu, SomeTokens(18, 60), chunk);
      AllLogits(on_cpu, SomeTokens(18, 60), chunk);
      const StepAccount account = on_gpu.runner->account();
      EXPECT_EQ(account.macs, on_cpu.runner->account().macs) << compute;
      // What is behind the last attention is no prompt's.
      EXPECT_EQ(account.prompt_macs > 0, compute == std::string("auto"));
      EXPECT_LT(account.prompt_macs, account.macs);
      read.push_back(account.weight_bytes);
    }
    // Layers of bf16 experts: gate, up and down of 64 x 32.
    const double expert = 3 * 64 * 32 * 2;
    const double more = (read[1] - read[0]) / expert;
    EXPECT_EQ(more, std::floor(more)) << "whole experts";
    EXPECT_GT(more, 0);
    // Two layers, of which a row uses 2 of 5 experts.
    EXPECT_LE(more, 2 * 3);
  }
}

}  // namespace
}  // namespace millrace::models
