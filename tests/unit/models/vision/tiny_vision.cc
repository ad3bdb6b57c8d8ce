#include "tests/unit/models/vision/tiny_vision.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "models/files/npz.h"
#include "models/image/decode.h"
#include "tests/support/temp_path.h"

namespace millrace::models::vision {
namespace {

namespace fs = std::filesystem;

std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path << ": run from the root of the repository";
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

}  // namespace

const TinyVision& Tiny() {
  static const TinyVision* const tiny = [] {
    auto* out = new TinyVision();
    const std::string folder = kTinyVision;
    out->golden = nlohmann::json::parse(ReadAll(folder + "/golden.json"));
    auto arrays = ReadNpz(folder + "/golden.npz");
    EXPECT_TRUE(arrays.ok()) << arrays.status().ToString();
    for (NamedTensor& array : *arrays) {
      out->arrays.emplace(array.name, std::move(array.tensor));
    }
    return out;
  }();
  return *tiny;
}

std::string FileOf(const std::string& image) {
  return ReadAll(std::string(kTinyVision) + "/" + image);
}

RgbImage Decoded(const std::string& image) {
  const std::string file = FileOf(image);
  auto decoded =
      DecodeImage({reinterpret_cast<const uint8_t*>(file.data()), file.size()});
  EXPECT_TRUE(decoded.ok()) << decoded.status().ToString();
  return *std::move(decoded);
}

VisionConfig TinyConfig(bool splits) {
  const std::string folder = kTinyVision;
  auto config = ReadVisionConfig(ReadAll(folder + "/config.json"),
                                 ReadAll(folder + "/processor_config.json"));
  EXPECT_TRUE(config.ok()) << config.status().ToString();
  config->splits = splits;
  return *config;
}

std::string WholeFolder() {
  static const std::string* const folder = [] {
    auto* path = new std::string(TempPath("whole_images"));
    fs::remove_all(*path);
    fs::create_directories(*path);
    for (const char* name :
         {"config.json", "model.safetensors", "tokenizer.json"}) {
      fs::copy_file(std::string(kTinyVision) + "/" + name, *path + "/" + name);
    }
    // Where older folders have it, and without the outer object.
    auto json = nlohmann::json::parse(
        ReadAll(std::string(kTinyVision) +
                "/processor_config.json"))["image_processor"];
    json["do_image_splitting"] = false;
    std::ofstream(*path + "/preprocessor_config.json") << json;
    return path;
  }();
  return *folder;
}

StatusOr<EncodedImages> EncodeNow(ImageEncoder& encoder,
                                  const std::vector<std::string>& bytes,
                                  EncodeWait wait) {
  std::vector<ImageFile> files;
  for (const std::string& each : bytes) {
    files.push_back({std::make_shared<const std::string>(each),
                     "image " + std::to_string(files.size())});
  }
  std::promise<StatusOr<EncodedImages>> done;
  encoder.Encode(std::move(files), std::move(wait),
                 [&](auto images) { done.set_value(std::move(images)); });
  return done.get_future().get();
}

EncodedImages EncodeCase(ImageEncoder& encoder, const nlohmann::json& row) {
  std::vector<std::string> files;
  for (const std::string name : row["images"]) files.push_back(FileOf(name));
  auto images = EncodeNow(encoder, files);
  EXPECT_TRUE(images.ok()) << images.status().ToString();
  return *std::move(images);
}

std::shared_ptr<const PromptEmbeddings> EmbeddingsOf(
    const VisionConfig& config, const EncodedImages& images,
    const std::vector<int32_t>& ids) {
  auto out = std::make_shared<PromptEmbeddings>();
  out->width = config.text_hidden;
  const auto count = static_cast<int32_t>(config.rows_per_tile());
  int32_t at = 0;
  for (const auto& image : images) {
    for (int64_t tile = 0; tile < image->grid.count(); ++tile) {
      while (ids[at] != config.image_token) ++at;
      out->spans.push_back(
          {.first = at,
           .count = count,
           .image = image->number,
           .values = image->rows,
           .begin = static_cast<size_t>(tile * count * out->width)});
      at += count;
    }
  }
  return out;
}

}  // namespace millrace::models::vision
