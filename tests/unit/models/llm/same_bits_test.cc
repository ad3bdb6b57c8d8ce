// The promise of the house: how a request was run (alone or in company, in what
// chunks, on how many threads, by which kernels, preempted or not, on which
// pages) never shows in what it gets. Tokens, log-probabilities and
// alternatives are compared bit by bit, over random mixes of requests.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>

#include "models/cpu/isa.h"
#include "tests/data/tiny_gguf.h"
#include "tests/support/temp_path.h"
#include "tests/unit/models/llm/step_driver.h"

namespace millrace::models {
namespace {

constexpr int kRequests = 16;

// Prompts of 1 to 24 tokens, and two that grow past one split of 256 keys.
std::vector<DriverRequest> RandomRequests(uint64_t seed) {
  uint64_t state = seed;
  const auto next = [&state](uint64_t n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % n;
  };
  std::vector<DriverRequest> requests;
  for (int i = 0; i < kRequests; ++i) {
    DriverRequest request;
    const uint64_t length = i == 0 ? 270 : i == 1 ? 255 : 1 + next(24);
    for (uint64_t k = 0; k < length; ++k) {
      request.prompt.push_back(static_cast<int32_t>(3 + next(270)));
    }
    request.max_tokens = static_cast<int32_t>(2 + next(5));
    SamplingParams& sampling = request.sampling;
    sampling.logprobs = true;
    sampling.top_logprobs = static_cast<int32_t>(next(6));
    sampling.seed = next(1000);
    if (i % 2 == 0) sampling.temperature = 0;
    if (i % 4 == 1) sampling.top_p = 0.9f;
    if (i % 4 == 3) sampling.top_k = 7;
    if (i % 5 == 0) sampling.frequency_penalty = 0.5f;
    if (i % 7 == 0) sampling.repetition_penalty = 1.3f;
    if (i % 14 == 7) sampling.penalty_last_n = 9;
    requests.push_back(request);
  }
  return requests;
}

class SameBits : public testing::TestWithParam<GgmlType> {
 protected:
  void SetUp() override {
    path_ = TempPath(std::string(InfoOf(GetParam()).name) + ".gguf");
    TinyModel model;
    model.type = GetParam();
    if (InfoOf(GetParam()).block_values == 256) {
      model = MakeWideTiny(GetParam());
    }
    ASSERT_TRUE(WriteTinyGguf(model, path_));
  }
  void TearDown() override { std::remove(path_.c_str()); }

  LlmModel Load(const LlmOptions& options) {
    StatusOr<LlmModel> model = LoadLlm(path_, options);
    EXPECT_TRUE(model.ok()) << model.status().ToString();
    return std::move(model).value();
  }

  // Tables whose chains are the same have the same name here.
  static std::string ChainOf(const std::string& isa,
                             const std::string& compute_dtype) {
    const auto table = ChooseKernels(isa);
    if (!table.ok()) return isa;
    const bool floats =
        GetParam() == GgmlType::kF32 || GetParam() == GgmlType::kF16;
    if (compute_dtype == "auto" && (*table)->prompt_attend != nullptr &&
        !floats) {
      return isa + ", prompts in bf16";
    }
    return GetParam() == GgmlType::kBF16 && (*table)->round_row != nullptr
               ? isa
               : "f32 or int8 rows";
  }

  std::string path_;
};

TEST_P(SameBits, HoweverARequestIsRun) {
  for (const char* kv : {"f16", "int8", "f32"}) {
    // What pages hold does not depend on the weights: once is enough.
    if (kv != std::string("f16") && GetParam() != GgmlType::kQ4_1) continue;
    SCOPED_TRACE(kv);
    const auto requests = RandomRequests(GetParam() == GgmlType::kF32 ? 7 : 11);
    LlmOptions options = TinyOptions(1);
    options.settings.kv_cache_dtype = kv;
    LlmModel reference = Load(options);
    const auto expected = Drive(*reference.runner, requests, {.chunk = 512});
    ASSERT_EQ(expected.size(), requests.size());
    ASSERT_FALSE(expected[0].ids.empty());

    EXPECT_EQ(Drive(*reference.runner, requests, {.chunk = 16, .page_seed = 5}),
              expected);
    EXPECT_EQ(Drive(*reference.runner, requests,
                    {.chunk = 37, .page_seed = 6, .preempt_every = 5}),
              expected);
    for (const int i : {0, 1, 3}) {
      EXPECT_EQ(Drive(*reference.runner, {requests[i]}, {.chunk = 512})[0],
                expected[i])
          << "alone, request " << i;
    }
    EXPECT_EQ(Drive(*reference.runner, {requests[0]}, {.chunk = 1})[0],
              expected[0]);

    for (const int threads : {2, 3}) {
      options = TinyOptions(threads);
      options.settings.kv_cache_dtype = kv;
      LlmModel team = Load(options);
      EXPECT_EQ(Drive(*team.runner, requests, {.chunk = 512}), expected)
          << threads << " threads";
      EXPECT_EQ(Drive(*team.runner, requests, {.chunk = 16}), expected)
          << threads << " threads";
    }
    // BF16 weights meet bf16 rows in some tables and f32 rows in others: those
    // of one chain agree.
    std::map<std::string, std::vector<DriverAnswer>> of_chain;
    of_chain[ChainOf(reference.info.isa, "auto")] = expected;
    for (const IsaChoice& isa : ListKernels()) {
      if (isa.kernels == nullptr || !isa.missing.empty()) continue;
      for (const char* compute : {"auto", "int8"}) {
        options = TinyOptions(2);
        options.settings.kv_cache_dtype = kv;
        options.isa = isa.name;
        options.settings.compute_dtype = compute;
        LlmModel other = Load(options);
        EXPECT_EQ(other.info.isa, isa.name);
        const auto got = Drive(*other.runner, requests, {.chunk = 64});
        const auto& want =
            of_chain.try_emplace(ChainOf(isa.name, compute), got);
        EXPECT_EQ(got, want.first->second) << isa.name << ", " << compute;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EveryType, SameBits,
                         testing::Values(GgmlType::kF32, GgmlType::kF16,
                                         GgmlType::kBF16, GgmlType::kQ8_0,
                                         GgmlType::kQ4_0, GgmlType::kQ4_1,
                                         GgmlType::kQ5_0, GgmlType::kQ6_K),
                         [](const auto& test) {
                           return std::string(InfoOf(test.param).name);
                         });

}  // namespace
}  // namespace millrace::models
