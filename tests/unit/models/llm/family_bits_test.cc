// The layers of every family keep the promise of same_bits_test.cc: a request
// gets the same bits alone or among others, in whatever chunks, on however many
// threads, preempted or not.
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "tests/unit/models/llm/step_driver.h"

namespace millrace::models {
namespace {

std::vector<DriverRequest> RandomRequests() {
  uint64_t state = 17;
  const auto next = [&state](uint64_t n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % n;
  };
  std::vector<DriverRequest> requests;
  for (int i = 0; i < 12; ++i) {
    DriverRequest request;
    // One goes past windows and original contexts.
    const uint64_t length = i == 0 ? 100 : 1 + next(24);
    for (uint64_t k = 0; k < length; ++k) {
      request.prompt.push_back(static_cast<int32_t>(next(300)));
    }
    request.max_tokens = static_cast<int32_t>(2 + next(5));
    request.sampling.logprobs = true;
    request.sampling.top_logprobs = 3;
    request.sampling.seed = next(1000);
    if (i % 2 == 0) request.sampling.temperature = 0;
    requests.push_back(request);
  }
  return requests;
}

// Integer weights go other ways than floats.
class FamilyBits
    : public testing::TestWithParam<std::tuple<const char*, const char*>> {
 protected:
  LlmModel Load(int threads) {
    LlmOptions options = TinyOptions(threads);
    options.settings.max_model_len = 128;
    options.settings.quantize = std::get<1>(GetParam());
    StatusOr<LlmModel> model =
        LoadLlm("tests/data/" + std::string(std::get<0>(GetParam())), options);
    EXPECT_TRUE(model.ok()) << model.status().ToString();
    return std::move(model).value();
  }
};

TEST_P(FamilyBits, AreTheSameHoweverARequestIsRun) {
  const auto requests = RandomRequests();
  LlmModel reference = Load(1);
  Runner& runner = *reference.runner;
  const auto expected = Drive(runner, requests, {.chunk = 512});
  ASSERT_EQ(expected.size(), requests.size());
  EXPECT_EQ(Drive(runner, requests, {.chunk = 7, .page_seed = 5}), expected);
  EXPECT_EQ(Drive(runner, requests,
                  {.chunk = 37, .page_seed = 6, .preempt_every = 5}),
            expected);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(Drive(runner, {requests[i]}, {.chunk = 512})[0], expected[i])
        << "alone, request " << i;
  }
  for (const int threads : {2, 3}) {
    LlmModel team = Load(threads);
    EXPECT_EQ(Drive(*team.runner, requests, {.chunk = 512}), expected)
        << threads << " threads";
    EXPECT_EQ(Drive(*team.runner, requests, {.chunk = 5}), expected)
        << threads << " threads";
  }
}

// Models that mix windows keep pages of each group, with the bits of one group.
class GroupedBits : public testing::TestWithParam<const char*> {
 protected:
  LlmModel Load(bool page_groups) {
    LlmOptions options = TinyOptions(2);
    options.page_groups = page_groups;
    StatusOr<LlmModel> model =
        LoadLlm(std::string("tests/data/") + GetParam(), options);
    EXPECT_TRUE(model.ok()) << model.status().ToString();
    return std::move(model).value();
  }
};

TEST_P(GroupedBits, AreThoseOfOneGroup) {
  auto requests = RandomRequests();
  for (int32_t i = 0; i < 130; ++i) {  // past pages
    requests[0].prompt.push_back(i % 300);
  }
  LlmModel one = Load(false);
  LlmModel grouped = Load(true);
  EXPECT_EQ(one.runner->info().windows, std::vector<int32_t>{0});
  EXPECT_GT(grouped.runner->info().windows.size(), 1u);
  const auto expected = Drive(*one.runner, requests, {.chunk = 512});
  EXPECT_EQ(Drive(*grouped.runner, requests, {.chunk = 512}), expected);
  EXPECT_EQ(Drive(*grouped.runner, requests,
                  {.chunk = 37, .page_seed = 6, .preempt_every = 5}),
            expected);
}

INSTANTIATE_TEST_SUITE_P(Folders, GroupedBits,
                         testing::Values("hf_gemma2", "hf_gemma3", "hf_gpt_oss",
                                         "hf_llama4", "hf_ministral"),
                         [](const auto& test) {
                           return std::string(test.param);
                         });

INSTANTIATE_TEST_SUITE_P(
    Folders, FamilyBits,
    testing::Combine(testing::Values("hf_gemma2", "hf_gemma3", "hf_gpt2",
                                     "hf_gpt_neox", "hf_gpt_oss", "hf_granite",
                                     "hf_llama4", "hf_llama_yarn",
                                     "hf_ministral", "hf_mistral", "hf_mixtral",
                                     "hf_qwen2moe", "hf_qwen3moe", "hf_olmo2",
                                     "hf_olmoe", "hf_phi3", "hf_smollm3",
                                     "hf_starcoder2"),
                     testing::Values("none", "q8_0")),
    [](const auto& test) {
      return std::string(std::get<0>(test.param)) + "_" +
             std::get<1>(test.param);
    });

}  // namespace
}  // namespace millrace::models
