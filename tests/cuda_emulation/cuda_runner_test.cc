// A model on the GPU that the CPU emulates, loaded as any other: recipe,
// backend, runner and kernels beside the engine on cores. The module is opened
// by dlopen, as the real one is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "models/cuda/module_api.h"
#include "models/gpu/cuda_context.h"
#include "models/gpu/lost_device.h"
#include "models/llm/teacher_forcing.h"
#include "tests/cuda_emulation/scored_logits.h"
#include "tests/cuda_emulation/test_module.h"
#include "tests/data/tiny_gguf.h"
#include "tests/support/temp_path.h"
#include "tests/unit/models/llm/step_driver.h"

namespace millrace::models {
namespace {

class CudaRunnerTest : public testing::Test {
 protected:
  CudaRunnerTest() { setenv("MILLRACE_CUDA_MODULE", ModuleFile(), 1); }
  ~CudaRunnerTest() override {
    setenv("MILLRACE_CUDA_MODULE", ModuleFile(), 1);
    setenv("MILLRACE_EMULATED_BYTES", "1073741824", 1);
    EXPECT_TRUE(OpenCudaModule().ok());  // which reads it
    unsetenv("MILLRACE_CUDA_MODULE");
    unsetenv("MILLRACE_EMULATED_BYTES");
    unsetenv("MILLRACE_EMULATED_OUTCOME");
  }

  static LlmOptions Options(const std::string& device) {
    LlmOptions options = TinyOptions(1);
    options.device = device;
    options.settings.compute_dtype = "f32";
    options.settings.kv_cache_dtype = "f32";
    options.settings.max_num_batched_tokens = 64;
    options.settings.max_num_seqs = 4;
    return options;
  }
  static StatusOr<LlmModel> Load(const TinyModel& tiny, LlmOptions options) {
    const std::string path = TempPath("cuda_runner.gguf");
    EXPECT_TRUE(WriteTinyGguf(tiny, path));
    StatusOr<LlmModel> model = LoadLlm(path, options);
    EXPECT_EQ(std::remove(path.c_str()), 0);
    return model;
  }
  static LlmModel MustLoad(const TinyModel& tiny, const LlmOptions& options) {
    return Must(Load(tiny, options));
  }
};

// Both compute in f32 from the same weights: sums of ~100 products in another
// order, a few layers deep, differ by some 1e-6; 1e-4 is ten times less than
// what is promised. With keys and values in f16 a value may round to its other
// neighbour, 2^-11 of it, and so may all that follows: 1e-3. In int8 a value
// may do so by 2^-7 of the greatest of its head, and the engine on cores rounds
// queries to int8, too: 2e-2.
TEST_F(CudaRunnerTest, GivesTheLogitsOfTheCpu) {
  std::vector<TinyModel> models;
  for (const GgmlType type : {GgmlType::kQ4_1, GgmlType::kQ8_0, GgmlType::kF16,
                              GgmlType::kF32, GgmlType::kBF16}) {
    TinyModel tiny;
    tiny.type = tiny.embedding_type = type;
    models.push_back(tiny);
  }
  TinyModel qwen;
  qwen.architecture = "qwen2";
  models.push_back(qwen);
  TinyModel odd;
  odd.type = odd.embedding_type = GgmlType::kF32;
  odd.tied = false;
  odd.hidden = 40;
  odd.ffn = 52;
  odd.heads = 6;
  odd.layers = 3;
  models.push_back(odd);
  TinyModel window;
  window.sliding_window = 6;
  models.push_back(window);
  TinyModel mixed = MakeWideTiny(GgmlType::kQ4_K);
  mixed.embedding_type = GgmlType::kQ6_K;
  models.push_back(mixed);
  const std::vector<int32_t> tokens = SomeTokens(9);
  for (TinyModel& tiny : models) {
    const bool first = &tiny == &models.front();
    if (!first) tiny.layers = 1;
    for (const std::string kv : {"f32", "f16", "int8"}) {
      if (!first && kv != "f32") continue;
      LlmOptions options = Options("cuda:0");
      options.settings.kv_cache_dtype = kv;
      LlmModel on_gpu = MustLoad(tiny, options);
      options.device = "cpu";
      LlmModel on_cpu = MustLoad(tiny, options);
      EXPECT_EQ(on_gpu.info.isa, "cuda sm_90");
      const auto logits = AllLogits(on_gpu, tokens, 5);
      const double difference =
          Difference(logits, AllLogits(on_cpu, tokens, 5));
      EXPECT_LT(difference, kv == "f32"   ? 1e-4
                            : kv == "f16" ? 1e-3
                                          : 2e-2)
          << InfoOf(tiny.type).name << " " << kv;
      const StepAccount account = on_gpu.runner->account();
      EXPECT_EQ(account.macs, on_cpu.runner->account().macs);
      EXPECT_EQ(account.kv_bytes, on_cpu.runner->account().kv_bytes);
      EXPECT_GT(account.weight_bytes, 0);
      if (first) {
        EXPECT_EQ(logits, AllLogits(on_gpu, tokens, 9)) << "chunks show";
      }
    }
  }
}

// Logits with compute_dtype below f32, and that rows in other chunks have the
// same bits. With int8 the engine on cores computes the same integer sums; what
// differs are f32 sums around them, and so now and then the rounding of an
// activation. Else it is asked for f32, and activations are rounded by 2^-12
// (f16), 2^-9 (bf16) or, behind the rows that are kept, 2^-8 of a block's
// greatest (int8) in a few products one after the other.
TEST_F(CudaRunnerTest, LowPrecisionStaysNearTheCpu) {
  struct Case {
    GgmlType type;
    const char* compute;
    const char* on_cpu;
    double most;
  };
  const std::vector<int32_t> tokens = SomeTokens(18);
  for (const Case& c : {Case{GgmlType::kF16, "auto", "f32", 2e-3},
                        Case{GgmlType::kBF16, "auto", "f32", 1e-2},
                        Case{GgmlType::kF32, "auto", "f32", 1e-4},
                        Case{GgmlType::kQ4_1, "auto", "f32", 2e-2},
                        Case{GgmlType::kQ8_0, "int8", "int8", 2e-3},
                        Case{GgmlType::kQ5_0, "int16", "int16", 2e-3},
                        Case{GgmlType::kQ4_K, "int8", "int8", 2e-3}}) {
    TinyModel tiny =
        InfoOf(c.type).block_values == 256 ? MakeWideTiny(c.type) : TinyModel{};
    tiny.type = tiny.embedding_type = c.type;
    tiny.layers = c.compute == std::string("auto") ? 1 : 2;
    LlmOptions options = Options("cuda:0");
    options.settings.compute_dtype = c.compute;
    LlmModel on_gpu = MustLoad(tiny, options);
    options = Options("cpu");
    options.settings.compute_dtype = c.on_cpu;
    LlmModel on_cpu = MustLoad(tiny, options);
    const auto logits = AllLogits(on_gpu, tokens, 18);
    const double difference = Difference(logits, AllLogits(on_cpu, tokens, 18));
    EXPECT_LT(difference, c.most) << InfoOf(c.type).name << " " << c.compute;
    if (c.type != GgmlType::kF32) {
      EXPECT_GT(difference, c.most / 1e4) << "computed in f32";
    }
    EXPECT_EQ(logits, AllLogits(on_gpu, tokens, 5)) << "chunks show";
    EXPECT_EQ(on_gpu.runner->info().kv_depends_on_role,
              c.type != GgmlType::kF32 && c.compute == std::string("auto"));
  }
}

// Mixtures of experts: with the softmax of all or of the chosen, a shared
// expert. Weights are in BF16, or quantised where rows are whole blocks; in the
// rows of qwen2moe's experts they are not.
TEST_F(CudaRunnerTest, ExpertsGiveTheLogitsOfTheCpu) {
  struct Case {
    const char* folder;
    const char* compute;
    const char* quantize;
    double most;
  };
  const std::vector<int32_t> tokens = SomeTokens(18);
  for (const Case& c : {Case{"hf_mixtral", "f32", "none", 1e-4},
                        Case{"hf_qwen2moe", "f32", "none", 1e-4},
                        Case{"hf_qwen3moe", "f32", "none", 1e-4},
                        Case{"hf_olmoe", "f32", "none", 1e-4},
                        Case{"hf_mixtral", "int8", "q8_0", 3e-3},
                        Case{"hf_qwen2moe", "auto", "none", 5e-3},
                        Case{"hf_llama4", "f32", "none", 1e-4},
                        Case{"hf_llama4", "int8", "none", 5e-3}}) {
    const std::string path = std::string("tests/data/") + c.folder;
    LlmOptions options = Options("cuda:0");
    options.settings.compute_dtype = c.compute;
    options.settings.quantize = c.quantize;
    StatusOr<LlmModel> on_gpu = LoadLlm(path, options);
    ASSERT_TRUE(on_gpu.ok()) << on_gpu.status().ToString();
    options.device = "cpu";
    StatusOr<LlmModel> on_cpu = LoadLlm(path, options);
    ASSERT_TRUE(on_cpu.ok()) << on_cpu.status().ToString();
    const auto logits = AllLogits(*on_gpu, tokens, 18);
    const double difference =
        Difference(logits, AllLogits(*on_cpu, tokens, 18));
    EXPECT_LT(difference, c.most) << c.folder << " " << c.compute;
    EXPECT_EQ(logits, AllLogits(*on_gpu, tokens, 1)) << "chunks show";
    EXPECT_EQ(logits, AllLogits(*on_gpu, tokens, 4)) << "chunks show";
  }
}

DriverRequest Request(int32_t length, float temperature) {
  DriverRequest request;
  request.prompt = SomeTokens(length);
  request.max_tokens = 3;
  request.sampling.temperature = temperature;
  request.sampling.seed = static_cast<uint64_t>(length);
  return request;
}

// Greedy, drawn, with log-probabilities, with penalties; alone, together, in
// chunks, preempted: the same answers, and those of the CPU.
TEST_F(CudaRunnerTest, AnswersDoNotDependOnTheBatch) {
  std::vector<DriverRequest> requests = {Request(20, 0), Request(3, 1),
                                         Request(9, 0), Request(262, 0.7f)};
  requests[1].sampling.top_p = 0.9f;
  requests[2].sampling.repetition_penalty = 1.3f;
  requests[3].sampling.logprobs = true;
  requests[3].sampling.top_logprobs = 2;
  requests[3].sampling.top_k = 20;
  TinyModel tiny;
  tiny.layers = 1;
  LlmModel on_cpu = MustLoad(tiny, Options("cpu"));
  const auto cpu = Drive(*on_cpu.runner, requests, {});
  struct Case {
    std::string compute;
    const char* kv;
  };
  // Pages of f16 and int8 are another kernel of attention for each role.
  for (const auto& [compute, kv] :
       {Case{"f32", "f32"}, Case{"auto", "f16"}, Case{"int8", "f16"},
        Case{"auto", "int8"}}) {
    // More than one split of keys once is enough.
    if (compute != "f32") requests[3].prompt.resize(70);
    LlmOptions options = Options("cuda:0");
    options.settings.compute_dtype = compute;
    options.settings.kv_cache_dtype = kv;
    LlmModel on_gpu = MustLoad(tiny, options);
    const auto together = Drive(*on_gpu.runner, requests, {.chunk = 24});
    const auto preempted =
        Drive(*on_gpu.runner, requests,
              {.chunk = 17, .page_seed = 5, .preempt_every = 9});
    EXPECT_EQ(Drive(*on_gpu.runner, {requests[3]}, {})[0], together[3]);
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(together[i], preempted[i]) << compute << " " << kv << i;
      if (compute != "f32") continue;
      EXPECT_EQ(together[i].ids, cpu[i].ids) << i;
    }
  }
}

TEST_F(CudaRunnerTest, SaysInOneSentenceWhyItCannotServe) {
  if (!Emulated()) GTEST_SKIP() << "only the emulated GPU fails when told";
  const auto why = [&](const char* device) {
    const StatusOr<LlmModel> model = Load(TinyModel{}, Options(device));
    return model.ok() ? std::string("it can")
                      : std::string(model.status().message());
  };
  EXPECT_THAT(why("cuda:1"),
              testing::HasSubstr("cuda:1 cannot serve: there are 1 GPUs, "
                                 "numbered from 0"));
  const std::pair<cuda::Outcome, const char*> outcomes[] = {
      {cuda::Outcome::kNoDriver, "there is no NVIDIA driver"},
      {cuda::Outcome::kDriverTooOld,
       "the NVIDIA driver knows CUDA 12.4, and 13.0 is needed"},
      {cuda::Outcome::kNoDevice, "the NVIDIA driver sees no GPU"},
      {cuda::Outcome::kDeviceTooOld, "'emulated' has compute capability 9.0"},
      {cuda::Outcome::kNoMemory, "it has no memory left"},
      {cuda::Outcome::kFault, "cuda:0 cannot serve: an emulated fault"}};
  for (const auto& [outcome, sentence] : outcomes) {
    setenv("MILLRACE_EMULATED_OUTCOME",
           std::to_string(static_cast<int>(outcome)).c_str(), 1);
    EXPECT_THAT(why("cuda:0"), testing::HasSubstr(sentence));
    EXPECT_EQ(why("auto"), "it can") << "on the CPU";
  }
  setenv("MILLRACE_EMULATED_OUTCOME", "0", 1);
  setenv("MILLRACE_EMULATED_BYTES", "1500000", 1);
  LlmOptions small = Options("cuda:0");
  small.settings.kv_cache_memory_bytes = 1 << 20;
  EXPECT_THAT(std::string(Load(TinyModel{}, small).status().message()),
              testing::HasSubstr("cuda:0 has no memory for"));
  setenv("MILLRACE_EMULATED_BYTES", "1000000000", 1);
  EXPECT_TRUE(Load(TinyModel{}, small).ok()) << "nothing was left allocated";

  LlmOptions int4 = Options("cuda:0");
  int4.settings.kv_cache_dtype = "int4";
  EXPECT_EQ(Load(TinyModel{}, int4).status().field(), "kv_cache_dtype");
  LlmOptions fp4 = Options("cuda:0");
  fp4.settings.compute_dtype = "fp4";
  EXPECT_EQ(Load(TinyModel{}, fp4).status().field(), "compute_dtype");
  TinyModel wide;
  wide.head_dim = 320;
  EXPECT_THAT(std::string(Load(wide, Options("cuda:0")).status().message()),
              testing::HasSubstr("there are no CUDA kernels for heads of 320"));

  setenv("MILLRACE_CUDA_MODULE", "/nonexistent/module.so", 1);
  EXPECT_THAT(why("cuda:0"),
              testing::HasSubstr("there is no CUDA module, looked for "
                                 "'/nonexistent/module.so'; install it"));
}

// The module as nvcc built it, where the toolkit is: it opens without a driver
// and says so. Machines with a GPU are for other tests.
TEST_F(CudaRunnerTest, TheRealModuleOpensWithoutADriver) {
  if (!Emulated()) GTEST_SKIP() << "the real module is under test as a whole";
  const std::string module = REAL_MODULE;
  if (module.empty()) GTEST_SKIP() << "no CUDA toolkit: no module was built";
  setenv("MILLRACE_CUDA_MODULE", module.c_str(), 1);
  const StatusOr<LlmModel> model = Load(TinyModel{}, Options("cuda:0"));
  if (model.ok()) GTEST_SKIP() << "there is a GPU: it serves";
  EXPECT_THAT(std::string(model.status().message()),
              testing::HasSubstr("cuda:0 cannot serve: "));
  EXPECT_EQ(model.status().field(), "device");
}

// A device of 24 MiB: what the model takes beside keys and values is known
// before, so that all of it is there when it loads.
TEST_F(CudaRunnerTest, KeysAndValuesTakeWhatTheRestLeaves) {
  if (!Emulated()) GTEST_SKIP() << "of an emulated size";
  setenv("MILLRACE_EMULATED_BYTES", "25165824", 1);
  LlmOptions options = Options("cuda:0");
  options.settings.max_num_seqs = 64;
  TinyModel tiny;
  tiny.context = 1 << 20;
  std::vector<int32_t> pages;
  for (const char* share : {"1", "0.9", "0.5"}) {
    options.settings.gpu_memory_utilization = share;
    const auto model = Load(tiny, options);
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    EXPECT_THAT(model->info.kv_bound_by, testing::HasSubstr("of cuda:0"));
    pages.push_back(model->runner->info().num_pages);
    EXPECT_GT(pages.back(), 10);
  }
  EXPECT_GT(pages[0], pages[1]);
  EXPECT_GT(pages[1], pages[2]);

  for (const char* wrong : {"0", "1.5", "90%", "", "nan"}) {
    options.settings.gpu_memory_utilization = wrong;
    EXPECT_THAT(
        Load(tiny, options).status().message(),
        testing::HasSubstr("gpu_memory_utilization is '" + std::string(wrong) +
                           "' but must be above 0 and at most 1"));
  }
}

TEST_F(CudaRunnerTest, PeaksAreMeasuredBetweenSteps) {
  LlmModel model = MustLoad(TinyModel{}, Options("cuda:0"));
  const auto before = AllLogits(model, SomeTokens(9), 9);
  const RunnerRoofline roofline = model.runner->MeasureRoofline();
  EXPECT_GT(roofline.read_bytes_per_s, 0);
  EXPECT_GT(roofline.macs_per_s, 0);
  EXPECT_EQ(AllLogits(model, SomeTokens(9), 9), before);
}

TEST_F(CudaRunnerTest, AFaultEndsTheStepAndTheNextOneRuns) {
  if (!Emulated()) GTEST_SKIP() << "only the emulated GPU fails when told";
  LlmModel model = MustLoad(TinyModel{}, Options("cuda:0"));
  const auto fail = EmulatedFunction<void(int)>("fail_wait");
  const auto before = AllLogits(model, SomeTokens(9), 9);
  fail(0);
  const Status status =
      ScoreTokens(model, SomeTokens(9), 9, [](int32_t, auto) {});
  EXPECT_EQ(status.message(), "cuda:0 failed: an emulated fault");
  EXPECT_EQ(AllLogits(model, SomeTokens(9), 9), before);
}

// Each later step fails; who owns the process is told once.
TEST_F(CudaRunnerTest, ALostDeviceIsTold) {
  if (!Emulated()) GTEST_SKIP() << "only the emulated GPU fails when told";
  constexpr const char* kLost =
      "cuda:0 is lost to this process, which has to be started again: an "
      "emulated loss";
  LlmModel model = MustLoad(TinyModel{}, Options("cuda:0"));
  std::vector<std::string> told;
  OnDeviceLost(
      [&](const Status& status) { told.emplace_back(status.message()); });
  const auto lose = EmulatedFunction<void(bool)>("lose");
  lose(true);
  for (int i = 0; i < 2; ++i) {
    const Status status =
        ScoreTokens(model, SomeTokens(9), 9, [](int32_t, auto) {});
    EXPECT_EQ(status.code(), StatusCode::kInternal);
    EXPECT_EQ(status.message(), kLost);
  }
  lose(false);
  EXPECT_EQ(told, std::vector<std::string>{kLost});
  OnDeviceLost(nullptr);
}

// A fault of a kernel may first show where the next one is launched.
TEST_F(CudaRunnerTest, ALaunchMayTellThatTheDeviceIsLost) {
  if (!Emulated()) GTEST_SKIP() << "of the emulated GPU's table";
  cuda::Module module = *Must(OpenCudaModule());
  module.is_lost = [](int error) { return error == 700; };
  const auto context = Must(CudaContext::Open(&module, 0, {}));
  int told = 0;
  OnDeviceLost([&](const Status&) { ++told; });
  EXPECT_EQ(context->Launched(98).message(),
            "cuda:0 did not start a kernel: an emulated error");
  EXPECT_EQ(told, 0);
  EXPECT_EQ(context->Launched(700).message(),
            "cuda:0 is lost to this process, which has to be started again: an "
            "emulated error");
  EXPECT_EQ(told, 1);
  OnDeviceLost(nullptr);
}

}  // namespace
}  // namespace millrace::models
