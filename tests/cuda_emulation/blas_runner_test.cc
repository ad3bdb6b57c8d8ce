// Models whose prompts cuBLASLt multiplies: near the engine on cores, the same
// answers in any batch, and native kernels where it cannot be used.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "models/gpu/cublaslt_library.h"
#include "models/llm/teacher_forcing.h"
#include "tests/cuda_emulation/blas_test_library.h"
#include "tests/cuda_emulation/scored_logits.h"
#include "tests/cuda_emulation/test_module.h"
#include "tests/data/tiny_gguf.h"
#include "tests/support/temp_path.h"
#include "tests/unit/models/llm/step_driver.h"

namespace millrace::models {
namespace {

class BlasRunner : public testing::Test {
 protected:
  static LlmOptions Options(const std::string& device,
                            const std::string& gemm_backend) {
    LlmOptions options = TinyOptions(1);
    options.device = device;
    options.settings.gemm_backend = gemm_backend;
    options.settings.compute_dtype = device == "cpu" ? "f32" : "auto";
    options.settings.kv_cache_dtype = "f32";
    options.settings.max_num_batched_tokens = 300;
    options.settings.max_num_seqs = 4;
    return options;
  }
  static TinyModel Tiny(GgmlType type) {
    TinyModel tiny;
    tiny.type = tiny.embedding_type = type;
    return tiny;
  }
  static LlmModel MustLoad(const TinyModel& tiny, const LlmOptions& options) {
    const std::string path = TempPath("blas_runner.gguf");
    EXPECT_TRUE(WriteTinyGguf(tiny, path));
    StatusOr<LlmModel> model = LoadLlm(path, options);
    EXPECT_EQ(std::remove(path.c_str()), 0);
    return Must(std::move(model));
  }
  static std::vector<std::vector<float>> Scored(LlmModel& model, int32_t chunk,
                                                int32_t count = 12) {
    return AllLogits(model, SomeTokens(count), chunk);
  }

  void SetUp() override {
    if (!environment_.has_library()) {
      GTEST_SKIP() << "MILLRACE_TEST_CUBLASLT names no cuBLASLt";
    }
    const auto library = CublasLtLibrary::Open();
    ASSERT_TRUE(library.ok()) << library.status().ToString();
  }

  const BlasEnvironment environment_;
};

// Rows are rounded to f16 (2^-12) or bf16 (2^-9) in a few products one after
// the other, as with native kernels; sums are added in another order.
TEST_F(BlasRunner, GivesTheLogitsOfTheCpuInAnyChunks) {
  struct Case {
    GgmlType type;
    int32_t tokens;
    double most;
  };
  for (const Case& c :
       {Case{GgmlType::kF16, 12, 2e-3}, Case{GgmlType::kBF16, 131, 1e-2}}) {
    const TinyModel tiny = Tiny(c.type);
    const int products = BlasEnvironment::Products();
    LlmModel by_blas = MustLoad(tiny, Options("cuda:0", "cublaslt"));
    if (Emulated()) {
      EXPECT_GT(BlasEnvironment::Products(), products) << "tried while loading";
      EXPECT_EQ(by_blas.info.isa, "cuda sm_90, cuBLASLt 13.1.0");
    }
    LlmModel native = MustLoad(tiny, Options("cuda:0", "native"));
    LlmModel on_cpu = MustLoad(tiny, Options("cpu", "native"));
    const auto logits = Scored(by_blas, c.tokens, c.tokens);
    EXPECT_LT(Difference(logits, Scored(on_cpu, c.tokens, c.tokens)), c.most);
    if (Emulated()) {
      EXPECT_NE(Scored(by_blas, 12), Scored(native, 12))
          << "multiplied by native kernels";
    }
    EXPECT_EQ(logits, Scored(by_blas, 5 + c.tokens / 4, c.tokens))
        << "chunks show";
  }
}

DriverRequest Request(int32_t length, float temperature) {
  DriverRequest request;
  for (int32_t i = 0; i < length; ++i) {
    request.prompt.push_back(3 + (i * 31 + length) % 250);
  }
  request.max_tokens = 4;
  request.sampling.temperature = temperature;
  request.sampling.logprobs = true;
  return request;
}

// Steps of completions run as CUDA graphs between those of prompts.
TEST_F(BlasRunner, AnswersDoNotDependOnTheBatch) {
  const std::vector<DriverRequest> requests = {Request(130, 0), Request(3, 1),
                                               Request(40, 0), Request(1, 0)};
  TinyModel tiny = Tiny(GgmlType::kBF16);
  tiny.layers = 1;
  LlmModel model = MustLoad(tiny, Options("cuda:0", "cublaslt"));
  const auto together = Drive(*model.runner, requests, {.chunk = 150});
  const auto preempted =
      Drive(*model.runner, requests,
            {.chunk = 19, .page_seed = 5, .preempt_every = 7});
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(Drive(*model.runner, {requests[i]}, {})[0], together[i]) << i;
    EXPECT_EQ(preempted[i], together[i]) << i;
  }
}

TEST_F(BlasRunner, NativeKernelsServeWhereItCannotBeUsed) {
  if (!Emulated()) GTEST_SKIP() << "of the library that stands in";
  TinyModel tiny = Tiny(GgmlType::kBF16);
  tiny.layers = 1;
  LlmModel native = MustLoad(tiny, Options("cuda:0", "native"));
  EXPECT_EQ(native.info.isa, "cuda sm_90");
  const auto expected = Scored(native, 12);
  // No algorithm that may be used, then no library.
  for (const char* what : {"none", "all_uneven"}) {
    BlasEnvironment::Tell(what);
    LlmModel model = MustLoad(tiny, Options("cuda:0", "cublaslt"));
    EXPECT_EQ(Scored(model, 12), expected) << what;
  }
  BlasEnvironment::Tell("");
  setenv("MILLRACE_CUBLASLT", "/nonexistent.so", 1);
  LlmModel model = MustLoad(tiny, Options("cuda:0", "cublaslt"));
  EXPECT_EQ(model.info.isa, "cuda sm_90");
  EXPECT_EQ(Scored(model, 12), expected);
}

// Quantised weights and compute_dtype f32 have nothing for it.
TEST_F(BlasRunner, OtherWeightsStayWithNativeKernels) {
  TinyModel tiny = Tiny(GgmlType::kQ8_0);
  tiny.layers = 1;
  const int products = BlasEnvironment::Products();
  LlmModel quantised = MustLoad(tiny, Options("cuda:0", "cublaslt"));
  LlmModel native = MustLoad(tiny, Options("cuda:0", "native"));
  EXPECT_EQ(Scored(quantised, 12), Scored(native, 12));
  tiny.type = tiny.embedding_type = GgmlType::kBF16;
  LlmOptions options = Options("cuda:0", "cublaslt");
  options.settings.compute_dtype = "f32";
  LlmModel in_f32 = MustLoad(tiny, options);
  EXPECT_EQ(Scored(in_f32, 12).size(), 12u);
  EXPECT_EQ(BlasEnvironment::Products(), products);  // 0 on a real GPU
}

TEST_F(BlasRunner, AProductThatFailsEndsTheStepAndTheNextOneRuns) {
  if (!Emulated()) GTEST_SKIP() << "of the library that stands in";
  TinyModel tiny = Tiny(GgmlType::kBF16);
  tiny.layers = 1;
  LlmModel model = MustLoad(tiny, Options("cuda:0", "cublaslt"));
  const auto expected = Scored(model, 12);
  BlasEnvironment::Tell(
      ("matmul:" + std::to_string(BlasEnvironment::Products() + 2)).c_str());
  const Status status =
      ScoreTokens(model, std::vector<int32_t>(9, 5), 9, [](int32_t, auto) {});
  EXPECT_EQ(status.message(),
            "cuda:0 failed: cuBLASLt cannot multiply 128 rows: the function "
            "failed to launch");
  EXPECT_EQ(Scored(model, 12), expected);
}

}  // namespace
}  // namespace millrace::models
