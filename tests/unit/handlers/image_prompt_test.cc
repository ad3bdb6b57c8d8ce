// Images in prompts, over an encoder that computes nothing: an image is a text
// such as "2x3", its tiles.
#include "handlers/image_prompt.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "handlers/generate_prompt.h"
#include "tests/unit/models/text/tiny_vocabulary.h"

namespace millrace::handlers {
namespace {

using models::vision::EncodedImage;
using models::vision::EncodedImages;
using models::vision::ImageFile;
using models::vision::TileGrid;
using Json = nlohmann::ordered_json;

constexpr int32_t kImage = 256;  // <image>; bytes are the ids before it
constexpr int32_t kAround = 257;
constexpr int32_t kWhole = 258;
constexpr int32_t kRowOne = 259;  // <row_1_col_1>
constexpr int32_t kBos = 260;

class FakeImages final : public models::vision::ImageEncoder {
 public:
  FakeImages() {
    config_.tile = 16;
    config_.patch = 8;
    config_.scale = 1;  // four rows a tile
    config_.text_hidden = 2;
    config_.image_token = kImage;
  }
  const models::vision::VisionConfig& config() const override {
    return config_;
  }
  StatusOr<TileGrid> GridOfFile(const ImageFile& file) const override {
    if (file.bytes->size() != 3) {
      return InvalidArgument(file.field + ": is no image").At(file.field);
    }
    return TileGrid{(*file.bytes)[0] - '0', (*file.bytes)[2] - '0'};
  }
  void Encode(std::vector<ImageFile>, models::vision::EncodeWait,
              Done) override {}

  EncodedImages Encoded(const std::vector<ChatImage>& images) const {
    EncodedImages out;
    for (const ChatImage& image : images) {
      auto encoded = std::make_shared<EncodedImage>();
      encoded->number = static_cast<int32_t>(out.size()) + 7;
      encoded->grid = *GridOfFile({image.bytes, image.field});
      encoded->rows = std::make_shared<const std::vector<float>>(
          static_cast<size_t>(encoded->grid.count()) * 4 * 2);
      out.push_back(std::move(encoded));
    }
    return out;
  }

 private:
  models::vision::VisionConfig config_;
};

class ImagePromptTest : public testing::Test {
 protected:
  ImagePromptTest() {
    using models::TokenKind;
    models::Vocabulary vocabulary = models::TinyVocabulary(
        "gpt-2", {},
        {{"<image>", TokenKind::kControl},
         {"<fake_token_around_image>", TokenKind::kControl},
         {"<global-img>", TokenKind::kControl},
         {"<row_1_col_1>", TokenKind::kControl},
         {"<s>", TokenKind::kControl}});
    vocabulary.bos_id = kBos;
    vocabulary.add_bos = true;
    parts_.tokenizer = *models::Tokenizer::Create(std::move(vocabulary));
    parts_.chat_template = *models::ChatTemplate::Create(
        "{% for m in messages %}{% for p in m.content %}"
        "{% if p.type == 'image' %}<image>{% else %}{{ p.text }}{% endif %}"
        "{% endfor %}{% endfor %}");
    parts_.model = "tiny";
    parts_.images = &encoder_;
    parts_.max_images = 2;
  }
  static ChatImage Image(const std::string& bytes,
                         const std::string& field = "here") {
    return {std::make_shared<const std::string>(bytes), field, field};
  }
  StatusOr<EncodedPrompt> Encode(const TextPrompt& prompt) {
    return EncodePrompt(parts_, prompt, 1000, encoder_.Encoded(prompt.images));
  }
  std::string Refusal(const TextPrompt& prompt) {
    return std::string(Encode(prompt).status().message());
  }

  FakeImages encoder_;
  GenerateParts parts_;
};

TEST_F(ImagePromptTest, MarkersOfATextAreItsImages) {
  const auto prompt =
      Encode({"a<__media__>b<__media__>", {Image("0x0"), Image("1x1")}});
  ASSERT_TRUE(prompt.ok()) << prompt.status().ToString();
  const std::vector<int32_t> four(4, kImage);
  std::vector<int32_t> ids = {kBos, 'a', kAround, kWhole};
  ids.insert(ids.end(), four.begin(), four.end());
  ids.insert(ids.end(), {kAround, 'b', kAround, kRowOne});
  ids.insert(ids.end(), four.begin(), four.end());
  ids.insert(ids.end(), {'\n', '\n', kAround, kWhole});
  ids.insert(ids.end(), four.begin(), four.end());
  ids.push_back(kAround);
  EXPECT_EQ(prompt->ids, ids);
  ASSERT_NE(prompt->embeddings, nullptr);
  const auto& spans = prompt->embeddings->spans;
  ASSERT_EQ(spans.size(), 3u);
  EXPECT_EQ(spans[0].first, 4);
  EXPECT_EQ(spans[0].image, 7);
  EXPECT_EQ(spans[1].first, 12);
  EXPECT_EQ(spans[2].first, 20);
  EXPECT_EQ(spans[2].image, 8);
}

TEST_F(ImagePromptTest, WithoutImagesAMarkerIsText) {
  const auto prompt = Encode({"<__media__>"});
  ASSERT_TRUE(prompt.ok()) << prompt.status().ToString();
  EXPECT_EQ(prompt->ids.size(), 1 + kMediaMarker.size());
  EXPECT_EQ(prompt->embeddings, nullptr);
}

TEST_F(ImagePromptTest, MarkersAndImagesAreAsMany) {
  EXPECT_EQ(Refusal({"a", {Image("0x0")}}),
            "the prompt has 0 times <__media__> but 1 images; write it once "
            "where each image is");
  EXPECT_EQ(Refusal({"<__media__><__media__>", {Image("0x0")}}),
            "the prompt has 2 times <__media__> but 1 images; write it once "
            "where each image is");
  EXPECT_EQ(Refusal({"<image><__media__>", {Image("0x0")}}),
            "the prompt holds '<image>', which stands for an image; write "
            "<__media__> where each image is");
}

TEST_F(ImagePromptTest, ImagesAreMeasuredOrRefusedAtTheirField) {
  const std::vector<ChatImage> images = {Image("0x0"), Image("2x3")};
  const auto measured = MeasureImages(parts_, images);
  ASSERT_TRUE(measured.ok()) << measured.status().ToString();
  EXPECT_EQ((*measured)[1]->grid, (TileGrid{2, 3}));
  const std::vector<ChatImage> bad = {Image("0x0"), Image("no image", "at")};
  EXPECT_EQ(MeasureImages(parts_, bad).status().field(), "at");
  const std::vector<ChatImage> many(3, Image("0x0"));
  EXPECT_EQ(MeasureImages(parts_, many).status().message(),
            "the request has 3 images but model 'tiny' takes 2; send fewer or "
            "raise limit_mm_per_prompt");
  parts_.images = nullptr;
  EXPECT_EQ(MeasureImages(parts_, images).status().message(),
            "here is an image but model 'tiny' takes only text");
}

TEST_F(ImagePromptTest, AChatIsCountedWithItsImages) {
  ChatPrompt chat;
  chat.messages = std::make_shared<const Json>(Json::parse(
      R"([{"role": "user", "content": [{"type": "text", "text": "a"},
                                       {"type": "image"}]}])"));
  chat.images = {Image("0x0")};
  const auto ids = EncodeChat(parts_, chat);
  ASSERT_TRUE(ids.ok()) << ids.status().ToString();
  EXPECT_EQ(*ids, (std::vector<int32_t>{'a', kAround, kWhole, kImage, kImage,
                                        kImage, kImage, kAround}));
  const auto prompt =
      EncodePrompt(parts_, chat, 1000, encoder_.Encoded(chat.images));
  ASSERT_TRUE(prompt.ok()) << prompt.status().ToString();
  EXPECT_EQ(*ids, prompt->ids);
}

}  // namespace
}  // namespace millrace::handlers
