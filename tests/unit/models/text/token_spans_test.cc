// Tokens with their places: the ids of the tokenizer for lines of mixed
// scripts, and places counted by hand. tests/e2e/test_token_classify.py has
// those of the package tokenizers.
#include "models/text/token_spans.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/text/hf_tokenizer.h"

namespace millrace::models {
namespace {

using Json = nlohmann::json;
using testing::ElementsAre;

struct Made {
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<const SpanEncoder> encoder;
};

Made Make(const std::string& json) {
  StatusOr<Vocabulary> vocabulary =
      ReadHfTokenizer(json, {.template_apart = true});
  EXPECT_TRUE(vocabulary.ok()) << vocabulary.status().ToString();
  Made made;
  made.tokenizer = *Tokenizer::Create(*std::move(vocabulary));
  auto encoder = SpanEncoder::Create(*made.tokenizer, json);
  EXPECT_TRUE(encoder.ok()) << encoder.status().ToString();
  made.encoder = *std::move(encoder);
  return made;
}

// The text below each token.
std::vector<std::string> Below(const SpanEncoder& encoder,
                               const std::string& text) {
  std::vector<std::string> out;
  const auto tokens = encoder.Encode(text);
  EXPECT_TRUE(tokens.ok()) << tokens.status().ToString();
  for (const TokenSpan& token : *tokens) {
    out.push_back(text.substr(token.begin, token.end - token.begin));
  }
  return out;
}

TEST(TokenSpans, IdsAreThoseOfTheTokenizer) {
  std::ifstream in("tests/golden/text/word_pieces.json");
  ASSERT_TRUE(in) << "run from the root of the repository";
  Json golden = Json::parse(in);
  const Json vocab = golden["cases"][0]["tokenizer"]["model"]["vocab"];
  for (Json& c : golden["cases"]) {
    c["tokenizer"]["model"]["vocab"] = vocab;
    const Made made = Make(c["tokenizer"].dump());
    for (const Json& each : golden["texts"]) {
      const auto text = each.get<std::string>();
      const auto tokens = made.encoder->Encode(text);
      ASSERT_TRUE(tokens.ok()) << tokens.status().ToString();
      std::vector<int32_t> ids;
      size_t end = 0;
      for (const TokenSpan& token : *tokens) {
        ids.push_back(token.id);
        EXPECT_LE(end, token.begin) << text;
        EXPECT_LE(token.begin, token.end) << text;
        end = token.begin;
      }
      EXPECT_LE(end, text.size());
      EXPECT_EQ(ids, made.tokenizer->Encode(text, {.parse_special = true}))
          << text;
    }
  }
}

TEST(TokenSpans, PlacesAreThoseOfTheTextAsItCame) {
  const Made made = Make(R"({
    "added_tokens": [{"id": 1, "content": "[SEP]", "special": true},
      {"id": 2, "content": "[MASK]", "special": true, "lstrip": true}],
    "normalizer": {"type": "BertNormalizer", "clean_text": true,
      "handle_chinese_chars": true, "strip_accents": true, "lowercase": true},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "model": {"type": "WordPiece", "unk_token": "[UNK]",
      "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
      "vocab": {"[UNK]": 0, "[SEP]": 1, "[MASK]": 2, "mill": 3, "##s": 4,
        "u": 5, "##ber": 6, "!": 7}}})");
  EXPECT_THAT(Below(*made.encoder, " \u00dcBER  MILLS![SEP]x\u0301y  [MASK]"),
              ElementsAre("\u00dc", "BER", "MILL", "S", "!", "[SEP]",
                          "x\u0301y", "  [MASK]"));
  // The mark that is dropped behind the last letter belongs to no token.
  EXPECT_THAT(Below(*made.encoder, "mi\u0301lls\u0301"),
              ElementsAre("mi\u0301ll", "s"));
  EXPECT_THAT(Below(*made.encoder, ""), ElementsAre());
}

TEST(TokenSpans, PartsOfACharacterStandForTheWhole) {
  std::ifstream in("tests/data/encoders/roberta_ner/tokenizer.json");
  ASSERT_TRUE(in) << "run from the root of the repository";
  Json json = Json::parse(in);
  Made made = Make(json.dump());
  EXPECT_THAT(
      Below(*made.encoder, "\U0001f600"),
      ElementsAre("\U0001f600", "\U0001f600", "\U0001f600", "\U0001f600"));
  for (const std::string& word : Below(*made.encoder, "the mill  of")) {
    EXPECT_EQ(word.find(' '), std::string::npos);
  }
  json["post_processor"]["trim_offsets"] = false;
  made = Make(json.dump());
  std::string joined;
  for (const std::string& word : Below(*made.encoder, "the mill  of")) {
    joined += word;
  }
  EXPECT_EQ(joined, "the mill  of");
}

TEST(TokenSpans, OtherTokenizersAreRefused) {
  Vocabulary vocabulary;
  vocabulary.model = "llama";
  vocabulary.tokens = {"<unk>", "a"};
  vocabulary.kinds = {TokenKind::kUnused, TokenKind::kNormal};
  vocabulary.scores = {0, 0};
  vocabulary.unk_id = 0;
  auto tokenizer = Tokenizer::Create(std::move(vocabulary));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  const auto encoder = SpanEncoder::Create(**tokenizer, "{}");
  ASSERT_FALSE(encoder.ok());
  EXPECT_THAT(std::string(encoder.status().message()),
              testing::HasSubstr("SentencePiece"));
}

}  // namespace
}  // namespace millrace::models
