// The default model's tokenizer against what transformers gave for the same
// text (tests/golden/text/tokenizer.json).
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "config/base/utf8.h"
#include "models/files/gguf.h"
#include "models/llm/vocabulary.h"
#include "models/text/tokenizer.h"

namespace millrace::models {
namespace {

using Ids = std::vector<int32_t>;

std::string ModelPath() {
  const auto env = [](const char* name) -> std::string {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
  };
  std::string cache = env("MILLRACE_CACHE");
  if (cache.empty()) {
    cache = env("XDG_CACHE_HOME");
    if (cache.empty()) cache = env("HOME") + "/.cache";
    cache += "/millrace";
  }
  return cache + "/models/SmolLM2-135M-Instruct.Q4_1.gguf";
}

std::string FromHex(const std::string& hex) {
  std::string out;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    out.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return out;
}

// The golden file holds text, so what is left of a character whose first byte
// has no token stands there as U+FFFD.
std::string Shown(const std::string& bytes) {
  return ReplaceInvalidUtf8(bytes);
}
std::string Expected(const nlohmann::json& row) {
  return row.value("decoded", row.at("text").get<std::string>());
}

class TokenizerGolden : public testing::Test {
 protected:
  void SetUp() override {
    const auto file = GgufFile::Open(ModelPath());
    ASSERT_TRUE(file.ok()) << "this test needs the default model at "
                           << ModelPath() << ": " << file.status().ToString();
    auto vocabulary = ReadVocabulary(*file);
    ASSERT_TRUE(vocabulary.ok()) << vocabulary.status().ToString();
    auto made = Tokenizer::Create(*std::move(vocabulary));
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    tokenizer_ = *std::move(made);
    std::ifstream golden("tests/golden/text/tokenizer.json");
    golden_ = nlohmann::json::parse(golden);
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  nlohmann::json golden_;
};

TEST_F(TokenizerGolden, EncodesAndDecodesEveryString) {
  const auto& rows = golden_.at("strings");
  ASSERT_EQ(rows.size(), 420u);
  for (const auto& row : rows) {
    const std::string text = row.at("text");
    const Ids expected = row.at("ids").get<Ids>();
    const Ids ids = tokenizer_->Encode(text, {.parse_special = true});
    EXPECT_EQ(ids, expected) << text;
    EXPECT_EQ(Shown(tokenizer_->Decode(ids, true)), Expected(row));
  }
}

TEST_F(TokenizerGolden, PiecesAreTheBytesOfTheirTokens) {
  const auto& pieces = golden_.at("pieces_hex");
  ASSERT_EQ(pieces.size(), 583u);
  for (const auto& [id, hex] : pieces.items()) {
    EXPECT_EQ(tokenizer_->Piece(std::stoi(id), false), FromHex(hex)) << id;
  }
}

TEST_F(TokenizerGolden, SpecialTokensAreTextUnlessAskedFor) {
  for (const auto& [id, text] : golden_.at("special").items()) {
    EXPECT_EQ(tokenizer_->IdOfSpecial(text.get<std::string>()), std::stoi(id));
    EXPECT_TRUE(tokenizer_->IsSpecial(std::stoi(id)));
  }
  size_t with_special = 0;
  for (const auto& row : golden_.at("strings")) {
    const std::string text = row.at("text");
    const Ids ids = tokenizer_->Encode(text, {});
    for (const int32_t id : ids) {
      EXPECT_FALSE(tokenizer_->IsSpecial(id)) << text;
    }
    EXPECT_EQ(Shown(tokenizer_->Decode(ids, false)), Expected(row));
    with_special += ids != row.at("ids").get<Ids>();
  }
  EXPECT_GE(with_special, 20u);  // the strings do hold special tokens
}

TEST_F(TokenizerGolden, AnswersEndWhereTheModelSays) {
  EXPECT_TRUE(tokenizer_->EndsAnswer(2));  // <|im_end|>
  EXPECT_EQ(tokenizer_->vocabulary().eos_id, 2);
}

}  // namespace
}  // namespace millrace::models
