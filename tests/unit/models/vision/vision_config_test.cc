#include "models/vision/vision_config.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/unit/models/vision/tiny_vision.h"

namespace millrace::models::vision {
namespace {

using Json = nlohmann::json;

Json TinyJson() {
  std::ifstream in(std::string(kTinyVision) + "/config.json");
  return Json::parse(in);
}

TEST(VisionConfig, TheFolderSaysAll) {
  const VisionConfig config = TinyConfig(true);
  EXPECT_EQ(config.hidden, 32);
  EXPECT_EQ(config.layers, 2);
  EXPECT_EQ(config.heads, 2);
  EXPECT_EQ(config.patches_per_side(), 6);
  EXPECT_EQ(config.rows_per_tile(), 9);
  EXPECT_EQ(config.text_hidden, 48);
  EXPECT_EQ(config.longest_edge, 96);
  EXPECT_EQ(config.activation, "gelu_tanh");
  EXPECT_EQ(config.interpolation, Interpolation::kLanczos);
  EXPECT_EQ(config.image_token, Tiny().golden["image_token"]);
}

TEST(VisionConfig, WithoutAPreprocessorTheClassDecides) {
  const auto config = ReadVisionConfig(TinyJson().dump(), "");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_TRUE(config->splits);
  EXPECT_EQ(config->longest_edge, 4 * 24);
}

TEST(VisionConfig, OnlyClassesWithImagesHaveVision) {
  EXPECT_TRUE(HasVision(TinyJson().dump()));
  EXPECT_TRUE(
      HasVision(R"({"architectures": ["SmolVLMForConditionalGeneration"]})"));
  EXPECT_FALSE(HasVision(R"({"architectures": ["LlamaForCausalLM"]})"));
  EXPECT_FALSE(HasVision("[]"));
  EXPECT_FALSE(HasVision("{"));
}

TEST(VisionConfig, ErrorsNameTheKey) {
  struct Case {
    const char* patch;  // of config.json
    const char* preprocessor;
    const char* message;
  };
  const Case cases[] = {
      {R"({"vision_config": null})", "",
       "it has no vision_config beside its text_config"},
      {R"({"text_config": {"model_type": "granite"}})", "",
       "text_config.model_type is \"granite\"; images are served with llama"},
      {R"({"vision_config": {"hidden_size": -1}})", "",
       "vision_config.hidden_size is -1 but must be a number from 1 to 65536"},
      {R"({"vision_config": {"hidden_size": 33}})", "",
       "vision_config.hidden_size is 33, which is no multiple of "
       "num_attention_heads (2)"},
      {R"({"vision_config": {"image_size": [24, 24]}})", "",
       "vision_config.image_size is [24,24] but must be a number from 1 to "
       "2048"},
      {R"({"vision_config": {"patch_size": 25}})", "",
       "vision_config.patch_size is 25 but must be a number from 1 to 24"},
      {R"({"vision_config": {"hidden_act": "quick_gelu"}})", "",
       "vision_config.hidden_act is 'quick_gelu', which is not supported"},
      {R"({"scale_factor": 4})", "",
       "scale_factor is 4, which does not divide the 6 patches of a side "
       "(vision_config.image_size, patch_size)"},
      {R"({"image_token_id": "x"})", "",
       "image_token_id is \"x\" but must be a number from 0 to 268435455"},
      {"{}", R"({"do_resize": false})",
       "do_resize is false, which is not supported"},
      {"{}", R"({"max_image_size": {"longest_edge": 12}})",
       "max_image_size.longest_edge is 12 but vision_config.image_size is 24; "
       "tiles as large as the encoder's are supported"},
      {"{}", R"({"size": {"longest_edge": 2400}})",
       "size.longest_edge is 2400, more than 16 tiles of 24"},
      {"{}", R"({"resample": 5})",
       "resample is 5; 0 (nearest), 1 (Lanczos), 2 (bilinear) and 3 (bicubic) "
       "are supported"},
      {"{}", R"({"image_std": [1, 0, 1]})",
       "image_std has a 0, by which nothing is divided"},
      {"{}", R"({"image_mean": [1, 2]})",
       "image_mean is [1,2] but must be a list of three numbers"},
      {"{}", "[]", "the preprocessor's file is no JSON object"},
  };
  for (const Case& each : cases) {
    Json json = TinyJson();
    json.merge_patch(Json::parse(each.patch));
    const auto config = ReadVisionConfig(json.dump(), each.preprocessor);
    ASSERT_FALSE(config.ok()) << each.message;
    EXPECT_EQ(config.status().message(), each.message);
  }
}

}  // namespace
}  // namespace millrace::models::vision
