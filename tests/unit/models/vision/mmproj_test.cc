// The encoder of a GGUF file against the folder that has the same weights, and
// what is refused.
#include "models/vision/mmproj.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <span>
#include <string>

#include "tests/support/temp_path.h"
#include "tests/unit/models/vision/tiny_vision.h"

namespace millrace::models::vision {
namespace {

const std::string kFile = std::string(kTinyVision) + "/mmproj.gguf";

std::string Bytes() {
  std::ifstream in(kFile, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The file's bytes with the value behind a key replaced by as many.
template <typename T>
std::string With(const std::string& key, T value) {
  std::string bytes = Bytes();
  constexpr size_t kTypeBytes = 4;
  const size_t at = bytes.find(key) + key.size() + kTypeBytes;
  std::memcpy(bytes.data() + at, &value, sizeof(value));
  return bytes;
}
std::string WithText(const std::string& from, const std::string& to) {
  std::string bytes = Bytes();
  bytes.replace(bytes.rfind(from), from.size(), to);
  return bytes;
}

StatusOr<VisionConfig> Read(const std::string& bytes) {
  const auto file = GgufFile::Parse(std::as_bytes(std::span(bytes)));
  EXPECT_TRUE(file.ok()) << file.status().ToString();
  return ReadMmproj(*file);
}

TEST(Mmproj, TheFileSaysWhatTheFolderSays) {
  const auto read = Read(Bytes());
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  const VisionConfig folder = TinyConfig(true);
  EXPECT_EQ(read->hidden, folder.hidden);
  EXPECT_EQ(read->intermediate, folder.intermediate);
  EXPECT_EQ(read->layers, folder.layers);
  EXPECT_EQ(read->heads, folder.heads);
  EXPECT_EQ(read->tile, folder.tile);
  EXPECT_EQ(read->patch, folder.patch);
  EXPECT_FLOAT_EQ(read->epsilon, folder.epsilon);
  EXPECT_EQ(read->activation, folder.activation);
  EXPECT_EQ(read->scale, folder.scale);
  EXPECT_EQ(read->text_hidden, folder.text_hidden);
  EXPECT_EQ(read->splits, folder.splits);
  EXPECT_EQ(read->longest_edge, folder.longest_edge);
  EXPECT_EQ(read->interpolation, folder.interpolation);
  EXPECT_EQ(read->mean, folder.mean);
  EXPECT_EQ(read->std, folder.std);
}

TEST(Mmproj, RowsAreThoseOfTheFolder) {
  // Weights are the same numbers; epsilon was rounded to f32.
  constexpr double kTolerance = 1e-5;
  const int32_t token = TinyConfig(true).image_token;
  const auto folder = ImageEncoder::Load(kTinyVision, {});
  const auto file = ImageEncoder::LoadMmproj(kFile, token, {});
  ASSERT_TRUE(folder.ok()) << folder.status().ToString();
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ((*file)->config().image_token, token);
  for (const char* name : {"wide.png", "tall.png", "small.png", "photo.jpg"}) {
    const auto wanted = EncodeNow(**folder, {FileOf(name)});
    const auto got = EncodeNow(**file, {FileOf(name)});
    ASSERT_TRUE(wanted.ok() && got.ok());
    EXPECT_EQ((*got)[0]->grid, (*wanted)[0]->grid);
    const std::vector<float>& a = *(*wanted)[0]->rows;
    const std::vector<float>& b = *(*got)[0]->rows;
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      ASSERT_NEAR(a[i], b[i], kTolerance) << name << " " << i;
    }
  }
}

TEST(Mmproj, WhatIsNotServedIsRefusedByItsName) {
  struct Case {
    std::string bytes;
    const char* message;
  };
  const Case cases[] = {
      {WithText("idefics3", "gemma-3x"),
       "its projector is 'gemma-3x' (clip.projector_type); 'idefics3' is "
       "served (SmolVLM and Idefics3)"},
      {WithText("clip.use_gelu", "clip.use_gxlu"),
       "neither clip.use_gelu nor clip.use_silu is true; the quick GELU that "
       "this stands for is not supported"},
      {With("clip.vision.block_count", uint32_t{5000}),
       "clip.vision.block_count is 5000 but must be a number from 1 to 1024"},
      {With("clip.vision.image_size", uint32_t{0}),
       "clip.vision.image_size is 0 but must be a number from 1 to 2048"},
      {With("clip.vision.attention.head_count", uint32_t{3}),
       "clip.vision.embedding_length is 32, which is no multiple of "
       "clip.vision.attention.head_count (3)"},
      {With("clip.vision.projector.scale_factor", uint32_t{5}),
       "clip.vision.projector.scale_factor is 5, which does not divide the 6 "
       "patches of a side (clip.vision.image_size, patch_size)"},
      {With("clip.vision.preproc_image_size", uint32_t{4000}),
       "clip.vision.preproc_image_size is 4000, more than 16 tiles of 24"},
      {WithText("clip.vision.image_mean", "clip.vision.image_mexn"),
       "the file has no key 'clip.vision.image_mean'"},
  };
  for (const Case& each : cases) {
    const auto read = Read(each.bytes);
    ASSERT_FALSE(read.ok()) << each.message;
    EXPECT_EQ(read.status().message(), each.message);
  }
}

TEST(Mmproj, ALanguageModelIsNone) {
  const auto file = GgufFile::Open(std::string(kTinyVision) + "/model.gguf");
  ASSERT_TRUE(file.ok());
  EXPECT_FALSE(IsMmproj(*file));
  EXPECT_FALSE(ReadMmproj(*file).ok());
}

TEST(Mmproj, TensorsThatDoNotFitAreNamed) {
  const std::string path = TempPath("mmproj.gguf");
  const auto load = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
    return std::string(
        ImageEncoder::LoadMmproj(path, 1, {}).status().message());
  };
  EXPECT_NE(load(WithText("v.blk.1.ffn_up.weight", "v.blk.1.ffn_xp.weight"))
                .find("'v.blk.1.ffn_up.weight' is missing"),
            std::string::npos);
  EXPECT_EQ(load(With("clip.vision.feed_forward_length", uint32_t{40})),
            "'" + path +
                "': the tensor 'v.blk.0.ffn_up.weight' has the shape [36, 32]; "
                "the configuration says [40, 32]");
}

}  // namespace
}  // namespace millrace::models::vision
