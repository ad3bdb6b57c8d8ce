// WordPiece and what stands around its texts, against what the package
// tokenizers gives for lines of mixed scripts; what is said of wrong files.
#include "models/text/word_pieces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "models/text/hf_tokenizer.h"
#include "models/text/post_processor.h"

namespace millrace::models {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<int32_t>;
using testing::ElementsAre;
using testing::HasSubstr;

std::unique_ptr<Tokenizer> Make(const std::string& json) {
  StatusOr<Vocabulary> vocabulary =
      ReadHfTokenizer(json, {.template_apart = true});
  EXPECT_TRUE(vocabulary.ok()) << vocabulary.status().ToString();
  if (!vocabulary.ok()) return nullptr;
  auto tokenizer = Tokenizer::Create(*std::move(vocabulary));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

TEST(WordPieces, IdsAndPairsAreThoseOfTheOriginal) {
  std::ifstream in("tests/golden/text/word_pieces.json");
  ASSERT_TRUE(in) << "run from the root of the repository";
  Json golden = Json::parse(in);
  const Json vocab = golden["cases"][0]["tokenizer"]["model"]["vocab"];
  const Json& texts = golden["texts"];
  int compared = 0;
  for (Json& c : golden["cases"]) {
    SCOPED_TRACE(c["name"].get<std::string>());
    c["tokenizer"]["model"]["vocab"] = vocab;
    const std::string json = c["tokenizer"].dump();
    const auto tokenizer = Make(json);
    ASSERT_NE(tokenizer, nullptr);
    const auto form = PostProcessor::FromJson(json, *tokenizer);
    ASSERT_TRUE(form.ok()) << form.status().ToString();
    const auto ids_of = [&](size_t i) {
      return tokenizer->Encode(texts[i].get<std::string>(),
                               {.parse_special = true});
    };
    for (size_t i = 0; i < texts.size(); ++i) {
      EXPECT_EQ(form->Of(ids_of(i), 1 << 20).ids, c["ids"][i].get<Ids>())
          << texts[i].dump();
      ++compared;
    }
    for (const Json& pair : c["pairs"]) {
      const size_t i = pair["first"];
      const Ids a = ids_of(i);
      const Ids b = ids_of(i + 1);
      const EncoderInput whole = form->OfPair(a, b, 1 << 20);
      EXPECT_EQ(whole.ids, pair["ids"].get<Ids>()) << i;
      EXPECT_EQ(whole.type_ids, pair["types"].get<Ids>()) << i;
      EXPECT_EQ(form->OfPair(a, b, pair["limit"]).ids, pair["cut"].get<Ids>())
          << i;
      EXPECT_EQ(form->Of(a, pair["limit"]).ids, pair["one"].get<Ids>()) << i;
    }
  }
  EXPECT_GE(compared, 600);
}

Json Tiny() {
  return Json::parse(R"({
    "added_tokens": [
      {"id": 1, "content": "[CLS]", "special": true},
      {"id": 2, "content": "[SEP]", "special": true}],
    "normalizer": {"type": "BertNormalizer", "clean_text": true,
      "handle_chinese_chars": true, "strip_accents": null, "lowercase": true},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "post_processor": {"type": "BertProcessing", "cls": ["[CLS]", 1],
      "sep": ["[SEP]", 2]},
    "model": {"type": "WordPiece", "unk_token": "[UNK]",
      "continuing_subword_prefix": "##", "max_input_chars_per_word": 8,
      "vocab": {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "mill": 3, "##s": 4,
        "m": 5, "!": 6}}})");
}

TEST(WordPieces, LongestTokensFirstAndUnknownWordsWhole) {
  const auto tokenizer = Make(Tiny().dump());
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_THAT(tokenizer->Encode("Mills! mx millsssss", {}),
              ElementsAre(3, 4, 6, 0, 0));
}

std::string Refusal(const Json& json) {
  const auto vocabulary =
      ReadHfTokenizer(json.dump(), {.template_apart = true});
  if (!vocabulary.ok()) return std::string(vocabulary.status().message());
  const auto tokenizer = Tokenizer::Create(*vocabulary);
  if (!tokenizer.ok()) return std::string(tokenizer.status().message());
  const auto form = PostProcessor::FromJson(json.dump(), **tokenizer);
  return form.ok() ? "" : std::string(form.status().message());
}

TEST(WordPieces, WhatIsWrongIsNamed) {
  Json json = Tiny();
  json["model"]["unk_token"] = "<none>";
  EXPECT_THAT(Refusal(json), HasSubstr("unk_token is '<none>'"));
  json = Tiny();
  json["pre_tokenizer"]["type"] = "Whitespace";
  EXPECT_THAT(Refusal(json), HasSubstr("'Whitespace'"));
  json = Tiny();
  json["normalizer"]["type"] = "Precompiled";
  EXPECT_THAT(Refusal(json), HasSubstr("'Precompiled'"));
  json = Tiny();
  json["model"]["max_input_chars_per_word"] = 0;
  EXPECT_THAT(Refusal(json), HasSubstr("1 to 10000"));
  json = Tiny();
  json["post_processor"]["cls"][1] = 99;
  EXPECT_THAT(Refusal(json), HasSubstr("the vocabulary has 7 tokens"));
  json = Tiny();
  json["post_processor"] = Json::parse(
      R"({"type": "TemplateProcessing", "single": [{"Nothing": {}}],
          "pair": [], "special_tokens": {}})");
  EXPECT_THAT(Refusal(json), HasSubstr("no part of a template"));
}

}  // namespace
}  // namespace millrace::models
