// SentencePiece's tokenizers against what the packages tokenizers and
// sentencepiece give for lines of mixed scripts, and what is said of files that
// are wrong.
#include "models/text/sentence_pieces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "config/base/base64.h"
#include "models/text/hf_tokenizer.h"
#include "models/text/sentence_model.h"
#include "models/text/tekken.h"

namespace millrace::models {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<int32_t>;

TokenKind KindOf(int number) {
  return number == 6   ? TokenKind::kByte
         : number == 1 ? TokenKind::kNormal
                       : TokenKind::kControl;
}

// As models/llm/vocabulary.cc reads them from a GGUF file of llama.
Vocabulary OfGguf(const Json& keys) {
  Vocabulary out;
  out.model = "llama";
  out.tokens = keys["tokens"].get<std::vector<std::string>>();
  out.scores = keys["scores"].get<std::vector<double>>();
  for (const int type : keys["types"]) out.kinds.push_back(KindOf(type));
  out.space_prefix = SpacePrefix::kEach;
  out.byte_fallback = true;
  out.unk_id = 0;
  return out;
}

TEST(SentencePieces, IdsAreThoseOfTheOriginals) {
  std::ifstream in("tests/golden/text/sentence_pieces.json");
  ASSERT_TRUE(in) << "run from the root of the repository";
  const Json golden = Json::parse(in);
  int compared = 0;
  for (const Json& c : golden["cases"]) {
    SCOPED_TRACE(c["name"].get<std::string>());
    const bool gguf = c["tokenizer"].is_null();
    StatusOr<Vocabulary> vocabulary =
        gguf ? StatusOr<Vocabulary>(OfGguf(c["gguf"]))
             : ReadHfTokenizer(c["tokenizer"].dump(), {});
    ASSERT_TRUE(vocabulary.ok()) << vocabulary.status().ToString();
    const auto tokenizer = Tokenizer::Create(*std::move(vocabulary));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
    const Json& texts = golden[gguf ? "plain" : "texts"];
    for (size_t i = 0; i < texts.size(); ++i) {
      const std::string text = texts[i];
      EXPECT_EQ((*tokenizer)->Encode(text, {.parse_special = !gguf}),
                c["ids"][i].get<Ids>())
          << Json(text).dump();
      ++compared;
    }
  }
  EXPECT_GE(compared, 6 * 150);
}

TEST(Tekken, IdsAreThoseOfTiktoken) {
  std::ifstream in("tests/golden/text/tekken.json");
  ASSERT_TRUE(in) << "run from the root of the repository";
  const Json golden = Json::parse(in);
  StatusOr<Vocabulary> vocabulary = ReadTekken(golden["tekken"].dump());
  ASSERT_TRUE(vocabulary.ok()) << vocabulary.status().ToString();
  EXPECT_EQ(vocabulary->bos_id, 1);
  EXPECT_EQ(vocabulary->eos_id, 2);
  EXPECT_EQ(vocabulary->tokens[7], "<SPECIAL_7>");
  const auto tokenizer = Tokenizer::Create(*std::move(vocabulary));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  for (size_t i = 0; i < golden["texts"].size(); ++i) {
    const std::string text = golden["texts"][i];
    EXPECT_EQ((*tokenizer)->Encode(text, {}), golden["ids"][i].get<Ids>())
        << Json(text).dump();
  }
  EXPECT_EQ(
      (*tokenizer)
          ->Encode("[INST]", {.add_special = true, .parse_special = true}),
      (Ids{1, 3}));
}

TEST(Tekken, FilesThatLieSayWhere) {
  std::ifstream in("tests/golden/text/tekken.json");
  const Json good = Json::parse(in)["tekken"];
  const auto says = [&](const Json& changes) {
    Json json = good;
    json.merge_patch(changes);
    return std::string(ReadTekken(json.dump()).status().message());
  };
  EXPECT_EQ(says(Json::object()), "");
  EXPECT_THAT(says({{"config", {{"default_vocab_size", 9999}}}}),
              testing::HasSubstr("but the config says 9991"));
  EXPECT_THAT(says({{"config", {{"default_num_special_tokens", -1}}}}),
              testing::HasSubstr("default_num_special_tokens is -1"));
  EXPECT_THAT(says({{"config", {{"pattern", nullptr}}}}),
              testing::HasSubstr("config.pattern"));
  EXPECT_THAT(says({{"vocab", {{{"rank", 0}, {"token_bytes", "?"}}}}}),
              testing::HasSubstr("vocab has 1 tokens"));
  EXPECT_THAT(says({{"special_tokens", {{{"rank", 8}, {"token_str", "x"}}}}}),
              testing::HasSubstr("a rank below 8"));
}

TEST(SentenceModel, FileGivesTheIdsOfThePackage) {
  std::ifstream in("tests/golden/text/sentence_pieces.json");
  ASSERT_TRUE(in) << "run from the root of the repository";
  const Json golden = Json::parse(in);
  for (const char* kind : {"bpe", "unigram"}) {
    const Json& model = golden["models"][kind];
    const auto file = DecodeBase64(model["file"].get<std::string>());
    ASSERT_TRUE(file);
    StatusOr<Vocabulary> vocabulary = ReadSentenceModel(*file);
    ASSERT_TRUE(vocabulary.ok()) << vocabulary.status().ToString();
    EXPECT_EQ(vocabulary->bos_id, 1);
    EXPECT_EQ(vocabulary->eos_id, 2);
    EXPECT_TRUE(vocabulary->byte_fallback);
    const auto tokenizer = Tokenizer::Create(*std::move(vocabulary));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
    const Json& texts = golden["plain"];
    for (size_t i = 0; i < texts.size(); ++i) {
      EXPECT_EQ((*tokenizer)->Encode(texts[i].get<std::string>(), {}),
                model["ids"][i].get<Ids>())
          << kind << ": " << texts[i].dump();
    }
    // Cut anywhere, it is refused or shorter, never read beyond its end.
    for (size_t size = 0; size < file->size(); size += 7) {
      const auto part =
          ReadSentenceModel(std::string_view(*file).substr(0, size));
      if (part.ok()) {
        EXPECT_LE(part->tokens.size(), 520u);
      }
    }
  }
}

TEST(SentenceModel, WhatIsNotServedIsSaid) {
  const auto says = [](std::string_view bytes) {
    return std::string(ReadSentenceModel(bytes).status().message());
  };
  EXPECT_THAT(says(""), testing::HasSubstr("has no tokens"));
  EXPECT_THAT(says("\x0a\x7f"), testing::HasSubstr("truncated"));
  EXPECT_THAT(says("\x0b"), testing::HasSubstr("wire type 3"));
  // A token of kind 9; a model of words; a table for normalising.
  EXPECT_THAT(says("\x0a\x02\x18\x09"), testing::HasSubstr("unknown kind 9"));
  EXPECT_THAT(says("\x12\x02\x18\x03"), testing::HasSubstr("of kind 3"));
  EXPECT_THAT(says("\x1a\x03\x12\x01x"), testing::HasSubstr("by a table"));
}

Vocabulary Small() {
  Vocabulary out;
  out.model = "llama";
  const auto add = [&](const char* token, float score, TokenKind kind) {
    out.tokens.push_back(token);
    out.scores.push_back(score);
    out.kinds.push_back(kind);
  };
  add("<unk>", 0, TokenKind::kUnused);          // 0
  add("<0xC3>", 0, TokenKind::kByte);           // 1
  add("<0xA9>", 0, TokenKind::kByte);           // 2
  add("\xe2\x96\x81", -9, TokenKind::kNormal);  // 3
  add("a", -9, TokenKind::kNormal);             // 4
  add("b", -9, TokenKind::kNormal);             // 5
  add("ab", -2, TokenKind::kNormal);            // 6
  add("\xe2\x96\x81"
      "a",
      -1, TokenKind::kNormal);  // 7
  out.unk_id = 0;
  out.byte_fallback = true;
  return out;
}

TEST(SentencePieces, BestScoreMergesFirstAndBytesStandForCharacters) {
  Vocabulary words = Small();
  const auto plain = Tokenizer::Create(words);
  ASSERT_TRUE(plain.ok()) << plain.status().ToString();
  EXPECT_EQ((*plain)->Encode("ab ab", {}), (Ids{6, 7, 5}));
  EXPECT_EQ((*plain)->Encode("\u00e9", {}), (Ids{1, 2}));
  // Not all bytes have a token.
  EXPECT_EQ((*plain)->Encode("a\u00fc\u00fcb", {}), (Ids{4, 0, 5}));
  EXPECT_EQ((*plain)->Decode(Ids{7, 5, 1, 2}, false), " ab\u00e9");
  words.space_prefix = SpacePrefix::kEach;
  const auto prefixed = Tokenizer::Create(words);
  ASSERT_TRUE(prefixed.ok());
  EXPECT_EQ((*prefixed)->Encode("ab", {}), (Ids{7, 5}));
  EXPECT_EQ((*prefixed)->Decode(Ids{7, 5}, false), "ab");
  EXPECT_EQ((*prefixed)->Piece(7, false), " a");
}

// Three ways to seven letters have the same sum but for rounding; in float
// another one would be the greatest. The ids are those of tokenizers.
TEST(SentencePieces, UnigramAddsScoresAsTheFileHasThem) {
  const auto words = ReadHfTokenizer(
      R"({"model": {"type": "Unigram", "unk_id": 0, "byte_fallback": false,
          "vocab": [["<unk>", 0.0], ["a", -3.542], ["aa", -7.084]]}})",
      {});
  ASSERT_TRUE(words.ok()) << words.status().ToString();
  const auto tokenizer = Tokenizer::Create(*words);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  EXPECT_EQ((*tokenizer)->Encode("aaaaaaa", {}), (Ids{2, 2, 2, 1}));
}

TEST(SentencePieces, WhatContradictsItselfIsNamed) {
  Vocabulary words = Small();
  words.scores.pop_back();
  EXPECT_THAT(Tokenizer::Create(words).status().message(),
              testing::HasSubstr("8 tokens but 7 scores"));
  words = Small();
  words.unk_id = 8;
  EXPECT_THAT(Tokenizer::Create(words).status().message(),
              testing::HasSubstr("the unknown token is 8"));
  words = Small();
  words.merges = {"a b", "b a"};
  EXPECT_THAT(Tokenizer::Create(words).status().message(),
              testing::HasSubstr("merge 1 is 'b a'"));
  for (const float score : {NAN, INFINITY, -INFINITY}) {
    words = Small();
    words.scores[5] = score;
    EXPECT_THAT(Tokenizer::Create(words).status().message(),
                testing::HasSubstr("the score of token 5"));
  }
  words = Small();
  words.tokens[6] = std::string(1025, 'a');
  EXPECT_THAT(Tokenizer::Create(words).status().message(),
              testing::HasSubstr("1025 bytes"));
  words = Small();
  words.model = "rwkv";
  EXPECT_THAT(Tokenizer::Create(words).status().message(),
              testing::HasSubstr("'rwkv' is not supported"));
}

}  // namespace
}  // namespace millrace::models
