// The language model with rows of images in its prompts: logits against
// transformers, and the same bits however a prompt is run.
#include <gtest/gtest.h>

#include <cmath>

#include "models/llm/model.h"
#include "models/llm/teacher_forcing.h"
#include "tests/unit/models/llm/step_driver.h"
#include "tests/unit/models/vision/tiny_vision.h"

namespace millrace::models::vision {
namespace {

LlmOptions FloatOptions() {
  LlmOptions options = TinyOptions(2);
  options.settings.compute_dtype = "f32";
  options.settings.kv_cache_dtype = "f32";
  options.settings.max_model_len = 512;
  options.settings.max_num_batched_tokens = 512;
  return options;
}

TEST(ImageLogits, AreThoseOfTransformers) {
  // As those of hf_folder_test, from rows that are 1e-5 apart.
  constexpr double kTolerance = 2e-4;
  auto model = LoadLlm(kTinyVision, FloatOptions());
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  EXPECT_EQ(model->info.architecture, "llama");
  for (const auto& row : Tiny().golden["cases"]) {
    const std::string name = row["name"];
    auto encoder = ImageEncoder::Load(
        row["split"].get<bool>() ? kTinyVision : WholeFolder(), {});
    ASSERT_TRUE(encoder.ok()) << encoder.status().ToString();
    const auto ids = row["ids"].get<std::vector<int32_t>>();
    const auto embeddings =
        EmbeddingsOf((*encoder)->config(), EncodeCase(**encoder, row), ids);
    const auto positions = row["positions"].get<std::vector<int32_t>>();
    const Tensor& wanted = Tiny().arrays.at(name + "/logits");
    const int64_t vocab = wanted.shape()[1];
    size_t seen = 0;
    double worst = 0;
    const Status status = ScoreTokens(
        *model, ids, 5,
        [&](int32_t position, std::span<const float> logits) {
          if (seen == positions.size() || positions[seen] != position) return;
          const float* line =
              wanted.data<float>() + static_cast<int64_t>(seen++) * vocab;
          for (int64_t i = 0; i < vocab; ++i) {
            worst = std::max(worst, std::fabs(double{line[i]} -
                                              logits[static_cast<size_t>(i)]));
          }
        },
        0, nullptr, embeddings);
    ASSERT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(seen, positions.size()) << name;
    EXPECT_LE(worst, kTolerance) << name;
  }
}

// Alone and among others, cut anywhere, put back to the start and run again.
TEST(ImageLogits, TheWayThatAPromptIsRunDoesNotChangeABit) {
  auto encoder = ImageEncoder::Load(kTinyVision, {});
  ASSERT_TRUE(encoder.ok()) << encoder.status().ToString();
  std::vector<DriverRequest> requests;
  for (const auto& row : Tiny().golden["cases"]) {
    if (!row["split"].get<bool>()) continue;
    DriverRequest& request = requests.emplace_back();
    request.prompt = row["ids"].get<std::vector<int32_t>>();
    request.embeddings = EmbeddingsOf(
        (*encoder)->config(), EncodeCase(**encoder, row), request.prompt);
    request.sampling.temperature = 0;
    request.sampling.logprobs = true;
    request.max_tokens = 10;
  }
  // The same tokens without images: a slot forgets what the last one had.
  requests.push_back(requests.front());
  requests.back().embeddings = nullptr;
  for (const char* dtype : {"f32", "auto"}) {
    LlmOptions options = FloatOptions();
    options.settings.compute_dtype = dtype;
    auto model = LoadLlm(kTinyVision, options);
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    std::vector<DriverAnswer> alone;
    for (const DriverRequest& request : requests) {
      alone.push_back(Drive(*model->runner, {request}, {}).front());
    }
    EXPECT_NE(alone.front().ids, alone.back().ids);
    for (const DriverOptions& way :
         {DriverOptions{}, DriverOptions{.chunk = 1},
          DriverOptions{.chunk = 7, .page_seed = 3},
          DriverOptions{.chunk = 64, .page_seed = 4, .preempt_every = 3}}) {
      const auto together = Drive(*model->runner, requests, way);
      for (size_t i = 0; i < requests.size(); ++i) {
        EXPECT_EQ(together[i], alone[i])
            << dtype << ", chunk " << way.chunk << ", request " << i;
      }
    }
  }
}

}  // namespace
}  // namespace millrace::models::vision
