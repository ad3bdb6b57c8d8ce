// Rows of the connector against those of transformers, and what is refused.
#include "models/vision/image_encoder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "tests/support/temp_path.h"
#include "tests/unit/models/vision/tiny_vision.h"

namespace millrace::models::vision {
namespace {

std::unique_ptr<ImageEncoder> Loaded(const std::string& folder,
                                     const ImageEncoderOptions& options = {}) {
  auto encoder = ImageEncoder::Load(folder, options);
  EXPECT_TRUE(encoder.ok()) << encoder.status().ToString();
  return *std::move(encoder);
}

TEST(ImageEncoder, RowsAreThoseOfTransformers) {
  // Sums of f32 in another order, a few layers deep.
  constexpr double kTolerance = 1e-4;
  for (const auto& row : Tiny().golden["cases"]) {
    const std::string name = row["name"];
    const auto encoder =
        Loaded(row["split"].get<bool>() ? kTinyVision : WholeFolder());
    std::vector<float> rows;
    for (const auto& image : EncodeCase(*encoder, row)) {
      rows.insert(rows.end(), image->rows->begin(), image->rows->end());
    }
    // Every 17th row.
    const Tensor& wanted = Tiny().arrays.at(name + "/rows");
    const int64_t width = encoder->config().text_hidden;
    const auto num_rows = static_cast<int64_t>(rows.size()) / width;
    ASSERT_EQ(wanted.shape()[0], (num_rows + 16) / 17) << name;
    for (int64_t i = 0; i < wanted.num_elements(); ++i) {
      const int64_t at = i / width * 17 * width + i % width;
      ASSERT_NEAR(rows[static_cast<size_t>(at)], wanted.data<float>()[i],
                  kTolerance)
          << name << " row " << i / width * 17;
    }
  }
}

TEST(ImageEncoder, ThreadsAndCompanyDoNotChangeABit) {
  const auto alone = Loaded(kTinyVision);
  const auto team = Loaded(kTinyVision, {.cpus = {0, 1}});
  const std::string wide = FileOf("wide.png");
  const std::string tall = FileOf("tall.png");
  const auto one = EncodeNow(*alone, {wide});
  const auto many = EncodeNow(*team, {tall, wide, wide});
  ASSERT_TRUE(one.ok() && many.ok());
  EXPECT_EQ(*(*one)[0]->rows, *(*many)[1]->rows);
  EXPECT_NE(*(*one)[0]->rows, *(*many)[0]->rows);
  EXPECT_EQ((*many)[1], (*many)[2]);  // it was kept
  EXPECT_NE((*many)[0]->number, (*many)[1]->number);
}

// One that was dropped comes back under another number: what is cached for the
// old one is not found, and no other image ever has its number.
TEST(ImageEncoder, NumbersAreNeverUsedAgain) {
  const auto encoder = Loaded(kTinyVision, {.kept_bytes = 1});
  const std::string wide = FileOf("wide.png");
  const std::string small = FileOf("small.png");
  const auto a = EncodeNow(*encoder, {wide});
  const auto kept = EncodeNow(*encoder, {wide});
  const auto b = EncodeNow(*encoder, {small});
  const auto again = EncodeNow(*encoder, {wide});
  ASSERT_TRUE(a.ok() && kept.ok() && b.ok() && again.ok());
  EXPECT_EQ((*a)[0]->number, (*kept)[0]->number);
  EXPECT_NE((*a)[0]->number, (*b)[0]->number);
  EXPECT_NE((*a)[0]->number, (*again)[0]->number);
  EXPECT_NE((*b)[0]->number, (*again)[0]->number);
  EXPECT_EQ(*(*a)[0]->rows, *(*again)[0]->rows);
}

TEST(ImageEncoder, BadFilesAreRefusedAtTheirField) {
  const auto encoder = Loaded(kTinyVision, {.max_pixels = 4000});
  const std::string small = FileOf("small.png");
  const std::string wide = FileOf("wide.png");  // 4500 pixels
  struct Case {
    std::vector<std::string> files;
    const char* field;
    const char* part;
  };
  for (const Case& each : std::vector<Case>{
           {{small, small.substr(0, 200)}, "image 1", "image 1: "},
           {{"hello"}, "image 0", "image 0: "},
           {{""}, "image 0", "image 0: "},
           {{wide}, "image 0", "4000"}}) {
    const auto images = EncodeNow(*encoder, each.files);
    ASSERT_FALSE(images.ok());
    EXPECT_EQ(images.status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(images.status().field(), each.field);
    EXPECT_NE(std::string(images.status().message()).find(each.part),
              std::string::npos)
        << images.status().ToString();
  }
  EXPECT_TRUE(EncodeNow(*encoder, {small}).ok());
}

TEST(ImageEncoder, TilesAreToldWithoutComputingThem) {
  const auto encoder = Loaded(kTinyVision);
  for (const char* name : {"small.png", "wide.png", "photo.jpg"}) {
    const std::string file = FileOf(name);
    const auto grid = encoder->GridOfFile(
        {std::make_shared<const std::string>(file), "image 0"});
    ASSERT_TRUE(grid.ok()) << grid.status().ToString();
    EXPECT_EQ(*grid, EncodeNow(*encoder, {file})->front()->grid) << name;
  }
  const auto bad = encoder->GridOfFile(
      {std::make_shared<const std::string>("hello"), "image 0"});
  EXPECT_EQ(bad.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(bad.status().field(), "image 0");
}

TEST(ImageEncoder, MoreRowsThanTheContextAreRefused) {
  const auto encoder = Loaded(kTinyVision);
  const std::string small = FileOf("small.png");  // 17 tiles of 9 rows
  const auto images =
      EncodeNow(*encoder, {small, small}, {.max_rows = 300, .model = "m"});
  ASSERT_FALSE(images.ok());
  EXPECT_EQ(images.status().message(),
            "image 1: the images up to this one have 306 tokens but the "
            "context of model 'm' is 300; send fewer images");
  EXPECT_EQ(images.status().field(), "image 1");
}

TEST(ImageEncoder, NobodyWaitsForWhatIsNotWanted) {
  const auto encoder = Loaded(kTinyVision);
  std::stop_source stop;
  stop.request_stop();
  const std::string small = FileOf("small.png");
  EXPECT_EQ(
      EncodeNow(*encoder, {small}, {.stop = stop.get_token()}).status().code(),
      StatusCode::kCancelled);
  EXPECT_EQ(
      EncodeNow(*encoder, {small}, {.deadline = Clock::Time()}).status().code(),
      StatusCode::kDeadlineExceeded);
}

// A copy of the folder whose config.json is patched.
Status LoadPatched(const char* patch) {
  namespace fs = std::filesystem;
  const std::string to = TempPath("patched");
  fs::remove_all(to);
  fs::create_directories(to);
  const std::string from = kTinyVision;
  fs::copy_file(from + "/model.safetensors", to + "/model.safetensors");
  std::ifstream in(from + "/config.json");
  auto json = nlohmann::json::parse(in);
  json.merge_patch(nlohmann::json::parse(patch));
  std::ofstream(to + "/config.json") << json;
  const auto encoder = ImageEncoder::Load(to, {});
  fs::remove_all(to);
  return encoder.status();
}

TEST(ImageEncoder, TensorsMustFitTheConfiguration) {
  EXPECT_TRUE(LoadPatched("{}").ok());
  struct Case {
    const char* patch;
    const char* message;
  };
  for (const Case& each : std::vector<Case>{
           {R"({"vision_config": {"intermediate_size": 37}})",
            "the tensor 'model.vision_model.encoder.layers.0.mlp.fc1.weight' "
            "has the shape [36, 32]; the configuration says [37, 32]"},
           {R"({"vision_config": {"num_hidden_layers": 3}})",
            "the tensor 'model.vision_model.encoder.layers.2.layer_norm1."
            "weight' is missing"},
           {R"({"vision_config": {"patch_size": 3}})",
            "the tensor 'model.vision_model.embeddings.patch_embedding.weight' "
            "has the shape [32, 3, 4, 4]; the configuration says [32, 3, 3, "
            "3]"},
           {R"({"scale_factor": 3})",
            "the tensor 'model.connector.modality_projection.proj.weight' has "
            "the shape [48, 128]; the configuration says [48, 288]"}}) {
    const Status status = LoadPatched(each.patch);
    EXPECT_NE(std::string(status.message()).find(each.message),
              std::string::npos)
        << status.ToString();
  }
}

TEST(ImageEncoder, OnlyFoldersWithOneHaveIt) {
  EXPECT_TRUE(ImageEncoder::IsIn(kTinyVision));
  EXPECT_FALSE(ImageEncoder::IsIn("tests/data/hf_llama"));
  EXPECT_FALSE(ImageEncoder::IsIn("tests/data/nothing"));
}

}  // namespace
}  // namespace millrace::models::vision
