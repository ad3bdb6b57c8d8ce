// Pictures against what PIL makes of them: images.npz and odd_images.npz are
// the output of make_images.py and make_odd_images.py in tests/data/image.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "models/files/npz.h"
#include "models/image/decode.h"
#include "models/image/preprocess.h"
#include "models/image/resize.h"

namespace millrace::models {
namespace {

using ::testing::HasSubstr;

constexpr const char* kImages[] = {"tests/data/image/images.npz",
                                   "tests/data/image/odd_images.npz"};

std::span<const uint8_t> Bytes(const Tensor& tensor) {
  return {tensor.data<uint8_t>(), static_cast<size_t>(tensor.num_elements())};
}

class ImageTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    all_ = new std::map<std::string, Tensor>();
    for (const char* path : kImages) {
      auto arrays = ReadNpz(path);
      ASSERT_TRUE(arrays.ok()) << arrays.status().ToString();
      for (NamedTensor& array : *arrays) {
        const auto [at, is_new] =
            all_->emplace(array.name, std::move(array.tensor));
        ASSERT_TRUE(is_new) << array.name;
      }
    }
  }
  static void TearDownTestSuite() {
    delete all_;
    all_ = nullptr;
  }

  // Names below `folder`, without it.
  static std::vector<std::string> Names(const std::string& folder) {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : *all_) {
      if (name.starts_with(folder)) names.push_back(name.substr(folder.size()));
    }
    return names;
  }
  static const Tensor& At(const std::string& name) { return all_->at(name); }
  static StatusOr<RgbImage> Decoded(const std::string& name,
                                    const DecodeOptions& options = {}) {
    return DecodeImage(Bytes(At("file/" + name)), options);
  }
  static RgbImage Rgb(const std::string& name) {
    const Tensor& rgb = At("rgb/" + name);
    RgbImage image;
    image.height = static_cast<int32_t>(rgb.shape()[0]);
    image.width = static_cast<int32_t>(rgb.shape()[1]);
    const auto bytes = Bytes(rgb);
    image.pixels.assign(bytes.begin(), bytes.end());
    return image;
  }

  static std::map<std::string, Tensor>* all_;
};

std::map<std::string, Tensor>* ImageTest::all_ = nullptr;

// Largest difference of a value.
int Distance(std::span<const uint8_t> a, std::span<const uint8_t> b) {
  int most = a.size() == b.size() ? 0 : 256;
  for (size_t i = 0; most < 256 && i < a.size(); ++i) {
    most = std::max(most, std::abs(int{a[i]} - int{b[i]}));
  }
  return most;
}

TEST_F(ImageTest, FilesAreReadAsPilReadsThem) {
  const std::vector<std::string> names = Names("rgb/");
  EXPECT_GE(names.size(), 110u);
  for (const std::string& name : names) {
    const auto image = Decoded(name);
    ASSERT_TRUE(image.ok()) << name << ": " << image.status().ToString();
    const Tensor& rgb = At("rgb/" + name);
    ASSERT_EQ(image->height, rgb.shape()[0]) << name;
    ASSERT_EQ(image->width, rgb.shape()[1]) << name;
    // Lossy formats: another release of the library may round otherwise.
    const bool is_lossy =
        name.starts_with("jpeg/") || name.find("lossy") != std::string::npos;
    EXPECT_LE(Distance(image->pixels, Bytes(rgb)), is_lossy ? 1 : 0) << name;
  }
}

TEST_F(ImageTest, DamagedAndLyingFilesAreRefused) {
  const std::vector<std::string> names = Names("file/bad/");
  EXPECT_GE(names.size(), 33u);
  for (const std::string& name : names) {
    const auto image = Decoded("bad/" + name);
    ASSERT_FALSE(image.ok()) << name;
    const std::set<std::string> others = {"gif",  "bmp",     "tiff", "heix",
                                          "avis", "jp2",     "jxl",  "jxl_box",
                                          "ico",  "big_tiff"};
    const bool is_other = others.contains(name);
    EXPECT_EQ(image.status().code(), is_other ? StatusCode::kUnimplemented
                                              : StatusCode::kInvalidArgument)
        << name << ": " << image.status().ToString();
  }
}

TEST_F(ImageTest, EveryCutOfAFileIsRefused) {
  // Behind the pixels of a JPEG nothing is needed.
  for (const auto& [name, tail] : std::vector<std::pair<std::string, size_t>>{
           {"jpeg/turned1", 2}, {"png/interlaced", 1}, {"webp/lossless", 1}}) {
    const auto bytes = Bytes(At("file/" + name));
    for (size_t size = 0; size + tail < bytes.size(); ++size) {
      EXPECT_FALSE(DecodeImage(bytes.first(size)).ok())
          << name << " cut at " << size;
    }
  }
}

TEST_F(ImageTest, WhatStandsBehindAPictureIsNotPartOfIt) {
  // Phones put a film there; its bytes may look like a million scans.
  const auto picture = Bytes(At("file/jpeg/turned1"));
  std::vector<uint8_t> bytes(picture.begin(), picture.end());
  for (int i = 0; i < 4'000'000; ++i) {
    bytes.push_back(0xff);
    bytes.push_back(0xda);
  }
  const auto image = DecodeImage(bytes);
  ASSERT_TRUE(image.ok()) << image.status().ToString();
}

TEST_F(ImageTest, RefusalsNameTheLimit) {
  const auto error = [](const StatusOr<RgbImage>& image) {
    return std::string(image.status().message());
  };
  EXPECT_THAT(error(Decoded("bad/png_60k")),
              HasSubstr("the PNG has 60000 x 60000 pixels but at most 33554432 "
                        "pixels are allowed (max_pixels); send a smaller "
                        "one"));
  EXPECT_THAT(error(Decoded("bad/jpeg_60k")), HasSubstr("60000 x 60000"));
  EXPECT_THAT(error(Decoded("bad/webp_60k")), HasSubstr("60000 x 60000"));
  EXPECT_THAT(error(Decoded("bad/jpeg_scan_bomb")),
              HasSubstr("100 scans over 5000 x 5000"));
  EXPECT_THAT(error(Decoded("bad/gif")), HasSubstr("is a GIF"));
  EXPECT_THAT(error(Decoded("bad/text")), HasSubstr("74 68 69 73"));
  EXPECT_THAT(error(Decoded("bad/empty")), HasSubstr("has no bytes"));
  EXPECT_TRUE(Decoded("png/rgb8", {.max_pixels = 23 * 17}).ok());
  EXPECT_FALSE(Decoded("png/rgb8", {.max_pixels = 23 * 17 - 1}).ok());
  EXPECT_FALSE(Decoded("jpeg/420", {.max_pixels = 37 * 29 - 1}).ok());
}

TEST_F(ImageTest, ScaledDecodingKeepsTheShorterSide) {
  const auto scaled = Decoded("jpeg/420", {.scale_down_to = 15});
  ASSERT_TRUE(scaled.ok()) << scaled.status().ToString();
  EXPECT_EQ(scaled->width, 19);  // of 37 x 29
  EXPECT_EQ(scaled->height, 15);
  const auto whole = Decoded("jpeg/420", {.scale_down_to = 16});
  EXPECT_EQ(whole->width, 37);
}

Interpolation MethodOf(const std::string& name) {
  if (name == "nearest") return Interpolation::kNearest;
  if (name == "lanczos") return Interpolation::kLanczos;
  return name == "bicubic" ? Interpolation::kBicubic : Interpolation::kBilinear;
}

TEST_F(ImageTest, ResizesAsPil) {
  const std::vector<std::string> names = Names("resized/");
  EXPECT_EQ(names.size(), 31u);
  for (const std::string& name : names) {
    const size_t slash = name.find('/');
    const std::string method =
        name.substr(slash + 1, name.rfind('/') - slash - 1);
    const Tensor& wanted = At("resized/" + name);
    const int64_t height = wanted.shape()[0];
    const int64_t width = wanted.shape()[1];
    const RgbImage resized =
        ResizedWindow(Rgb(name.substr(0, slash)), width, height,
                      MethodOf(method), {0, 0, width, height});
    EXPECT_EQ(Distance(resized.pixels, Bytes(wanted)), 0) << name;
  }
}

TEST_F(ImageTest, AWindowIsAPartOfTheWhole) {
  const RgbImage image = Rgb("noise");
  const RgbImage whole =
      ResizedWindow(image, 33, 22, Interpolation::kBicubic, {0, 0, 33, 22});
  const RgbImage part =
      ResizedWindow(image, 33, 22, Interpolation::kBicubic, {5, 3, 7, 4});
  for (int64_t y = 0; y < 4; ++y) {
    const std::span<const uint8_t> expected(whole.row(y + 3) + 5 * 3, 7 * 3);
    EXPECT_EQ(Distance({part.row(y), 7 * 3}, expected), 0);
  }
}

PreprocessOptions ImageNet(int64_t resize, int64_t crop) {
  PreprocessOptions options;
  options.resize_shorter = resize;
  options.center_crop = {crop, crop};
  options.mean = {0.485, 0.456, 0.406};
  options.std = {0.229, 0.224, 0.225};
  return options;
}

TEST_F(ImageTest, InputsAreTorchvisions) {
  const std::vector<std::string> names = Names("input/");
  EXPECT_EQ(names.size(), 24u);
  for (const std::string& name : names) {
    const size_t last = name.rfind('/');
    const size_t method = name.rfind('/', last - 1);
    const size_t under = name.rfind('_');
    PreprocessOptions options =
        ImageNet(std::stoi(name.substr(last + 1, under - last - 1)),
                 std::stoi(name.substr(under + 1)));
    options.interpolation =
        MethodOf(name.substr(method + 1, last - method - 1));
    const RgbImage image = Rgb(name.substr(0, method));
    const Tensor& wanted = At("input/" + name);
    const auto size = OutputSize(image, options, 1 << 20);
    ASSERT_TRUE(size.ok()) << name;
    ASSERT_EQ(size->height * size->width * 3, wanted.num_elements()) << name;
    std::vector<float> row(static_cast<size_t>(wanted.num_elements()));
    WriteInput(image, options, row.data());
    float most = 0;
    for (size_t i = 0; i < row.size(); ++i) {
      most = std::max(most, std::abs(row[i] - wanted.data<float>()[i]));
    }
    EXPECT_LE(most, 1e-5f) << name;  // float steps; a pixel more is 0.017
  }
}

TEST_F(ImageTest, LayoutsAndColors) {
  RgbImage image;
  image.width = 2;
  image.height = 1;
  image.pixels = {10, 20, 30, 40, 50, 60};
  std::vector<uint8_t> row(6);
  PreprocessOptions options;
  WriteInput(image, options, row.data());
  EXPECT_THAT(row, ::testing::ElementsAre(10, 40, 20, 50, 30, 60));
  options.color = ColorOrder::kBgr;
  WriteInput(image, options, row.data());
  EXPECT_THAT(row, ::testing::ElementsAre(30, 60, 20, 50, 10, 40));
  options.channels_last = true;
  WriteInput(image, options, row.data());
  EXPECT_THAT(row, ::testing::ElementsAre(30, 20, 10, 60, 50, 40));
  options.color = ColorOrder::kGray;
  row.resize(2);
  WriteInput(image, options, row.data());
  EXPECT_THAT(row, ::testing::ElementsAre(18, 48));
}

TEST_F(ImageTest, AVeryLongPictureIsRefusedBeforeItIsResized) {
  RgbImage image;
  image.width = 60000;
  image.height = 1;
  PreprocessOptions options;
  options.resize_shorter = 256;
  const auto size = OutputSize(image, options, 1 << 20);
  ASSERT_FALSE(size.ok());
  EXPECT_THAT(std::string(size.status().message()),
              HasSubstr("resized to 15360000 x 256 but at most 1048576"));
}

}  // namespace
}  // namespace millrace::models
