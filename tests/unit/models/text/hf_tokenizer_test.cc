// tokenizer.json in its several forms, and what is refused with a reason. That
// token ids are those of transformers is tested with whole folders.
#include "models/text/hf_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "models/text/hf_regex.h"

namespace millrace::models {
namespace {

using Json = nlohmann::ordered_json;
using testing::ElementsAre;
using testing::HasSubstr;

// a b ab <e>, one merge, ByteLevel with GPT-2's rule.
Json Small() {
  return Json::parse(R"({
    "added_tokens": [{"id": 3, "content": "<e>", "special": true}],
    "normalizer": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
    "post_processor": null,
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2},
              "merges": ["a b"]}})");
}

StatusOr<Vocabulary> Read(const Json& json) {
  return ReadHfTokenizer(json.dump(), {.bos = "", .eos = "<e>"});
}

std::string ErrorOf(const std::string& pointer, const Json& value) {
  Json json = Small();
  json[Json::json_pointer(pointer)] = value;
  const auto read = Read(json);
  return read.ok() ? "" : std::string(read.status().message());
}

TEST(HfTokenizer, BothFormsOfMergesGiveTheSame) {
  Json json = Small();
  for (const Json& merge : {Json("a b"), Json{"a", "b"}}) {
    json["model"]["merges"] = Json::array({merge});
    auto read = Read(json);
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    EXPECT_THAT(read->merges, ElementsAre("a b"));
    EXPECT_EQ(read->eos_id, 3);
    EXPECT_THAT(read->eog_ids, ElementsAre(3));
    EXPECT_EQ(read->bos_id, -1);
    const auto tokenizer = Tokenizer::Create(std::move(read).value());
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
    EXPECT_THAT((*tokenizer)->Encode("abba<e>", {.parse_special = true}),
                ElementsAre(2, 1, 0, 3));
  }
}

TEST(HfTokenizer, AddedTokensWinAndGapsAreUnused) {
  Json json = Small();
  json["added_tokens"].push_back({{"id", 6}, {"content", "<think>"}});
  const auto read = Read(json);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_THAT(read->kinds, ElementsAre(TokenKind::kNormal, TokenKind::kNormal,
                                       TokenKind::kNormal, TokenKind::kControl,
                                       TokenKind::kUnused, TokenKind::kUnused,
                                       TokenKind::kUserDefined));
  EXPECT_EQ(read->tokens[6], "<think>");
}

TEST(HfTokenizer, StepsOfPreTokenizersFollowEachOther) {
  Json json = Small();
  json["pre_tokenizer"] = Json::parse(R"({"type": "Sequence", "pretokenizers": [
      {"type": "Split", "pattern": {"String": "a.b"}, "behavior": "Isolated"},
      {"type": "Digits", "individual_digits": false},
      {"type": "Split", "pattern": {"Regex": "\\S+"}, "behavior": "Removed",
       "invert": true},
      {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]})");
  const auto read = Read(json);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  ASSERT_EQ(read->splits.size(), 3u);
  const auto cutter = Pretokenizer::Create(read->splits, false);
  ASSERT_TRUE(cutter.ok()) << cutter.status().ToString();
  std::vector<std::string> pieces;
  (*cutter)->Cut("xa.by 12c",
                 [&](std::string_view piece) { pieces.emplace_back(piece); });
  EXPECT_THAT(pieces, ElementsAre("x", "a.b", "y", "12", "c"));
}

TEST(HfTokenizer, AMatchOfNothingCuts) {
  const SplitRule rules[] = {{.pattern = "(?=\\p{Lu})"}};
  const auto cutter = Pretokenizer::Create(rules, false);
  ASSERT_TRUE(cutter.ok());
  std::vector<std::string> pieces;
  (*cutter)->Cut("oneTwo\u00dcber",
                 [&](std::string_view piece) { pieces.emplace_back(piece); });
  EXPECT_THAT(pieces, ElementsAre("one", "Two", "\u00dcber"));
}

TEST(HfTokenizer, TheTokenBeforeATextComesFromTheTemplate) {
  const Json before = Json::parse(R"({"type": "Sequence", "processors": [
      {"type": "ByteLevel"}, {"type": "TemplateProcessing", "single": [
        {"SpecialToken": {"id": "<e>", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}}]}]})");
  Json json = Small();
  json["post_processor"] = before;
  const auto read = Read(json);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_TRUE(read->add_bos);
  EXPECT_EQ(read->bos_id, 3);
  Json after = before;
  std::swap(after["processors"][1]["single"][0],
            after["processors"][1]["single"][1]);
  EXPECT_THAT(ErrorOf("/post_processor", after),
              HasSubstr("one token before it is supported"));
  EXPECT_THAT(ErrorOf("/post_processor", {{"type", "BertProcessing"}}),
              HasSubstr("'BertProcessing' is not supported"));
}

TEST(HfTokenizer, WhatIsNotKnownIsRefused) {
  EXPECT_THAT(ErrorOf("/model/type", "WordLevel"),
              HasSubstr("'WordLevel': byte-level BPE"));
  EXPECT_THAT(ErrorOf("/model/byte_fallback", true),
              HasSubstr("byte_fallback"));
  EXPECT_THAT(ErrorOf("/model/end_of_word_suffix", "</w>"),
              HasSubstr("end_of_word_suffix"));
  EXPECT_THAT(ErrorOf("/pre_tokenizer", {{"type", "Metaspace"}}),
              HasSubstr("pre_tokenizer has {"));
  EXPECT_THAT(ErrorOf("/pre_tokenizer", {{"type", "Whitespace"}}),
              HasSubstr("pre_tokenizer has 'Whitespace'"));
  EXPECT_THAT(ErrorOf("/pre_tokenizer/add_prefix_space", true),
              HasSubstr("add_prefix_space"));
  EXPECT_THAT(ErrorOf("/normalizer", {{"type", "Prepend"}}),
              HasSubstr("'Prepend' adds something else"));
  EXPECT_THAT(ErrorOf("/normalizer", {{"type", "Lowercase"}}),
              HasSubstr("the normalizer is 'Lowercase'"));
  EXPECT_EQ(ErrorOf("/normalizer", {{"type", "NFC"}}), "");
  EXPECT_THAT(ErrorOf("/added_tokens/0/single_word", true),
              HasSubstr("'<e>' has single_word"));
}

TEST(HfTokenizer, LiesAreNamed) {
  EXPECT_THAT(ReadHfTokenizer("[]", {}).status().message(),
              HasSubstr("no object 'model'"));
  EXPECT_THAT(ErrorOf("/model/vocab", Json::array()), HasSubstr("model.vocab"));
  EXPECT_THAT(ErrorOf("/model/vocab/b", 0), HasSubstr("to two tokens"));
  EXPECT_THAT(ErrorOf("/model/vocab/b", -1), HasSubstr("has the id -1"));
  EXPECT_THAT(ErrorOf("/model/vocab/b", 1 << 30), HasSubstr("has the id"));
  EXPECT_THAT(ErrorOf("/model/merges", 3), HasSubstr("model.merges"));
  EXPECT_THAT(ErrorOf("/model/merges/0", {"a"}), HasSubstr("merge 0 is"));
  EXPECT_THAT(ErrorOf("/added_tokens/0/id", nullptr), HasSubstr("no id"));
  EXPECT_THAT(ErrorOf("/pre_tokenizer", Json::parse(R"({"type": "Split",
          "pattern": {"Regex": "a"}, "behavior": "MergedWithNext"})")),
              HasSubstr("\"MergedWithNext\""));
}

std::string Translated(std::string_view pattern) {
  const auto out = Pcre2FromOniguruma(pattern);
  return out.ok() ? *out : std::string(out.status().message());
}

TEST(HfRegex, WhatDiffersIsTranslated) {
  EXPECT_EQ(Translated(R"(\s+(?!\S)|[^\s\p{L}]?\d{1,3})"),
            R"(\p{White_Space}+(?!\P{White_Space})|[^\p{White_Space}\p{L}]?)"
            R"(\d{1,3})");
  EXPECT_EQ(Translated(R"(\w\W[\w])"),
            R"([\p{L}\p{M}\p{N}\p{Pc}][^\p{L}\p{M}\p{N}\p{Pc}])"
            R"([\p{L}\p{M}\p{N}\p{Pc}])");
  EXPECT_EQ(Translated(R"(\p{Han}\P{Hiragana}\p{^Lu}\p{Letter})"),
            R"(\p{sc:Han}\P{sc:Hiragana}\P{Lu}\p{L})");
  EXPECT_EQ(Translated(R"((?i:'s|'t)(?<!a)(?>b)\[[]\]a[:alpha:]]\u00e9)"),
            R"((?i:'s|'t)(?<!a)(?>b)\[[]\]a[:alpha:]]\x{00e9})");
}

TEST(HfRegex, WhatHasNoEqualIsRefused) {
  for (const char* pattern :
       {R"([a&&b])", R"([a[b]])", R"(\h)", R"((?m:a))", R"((?<name>a))",
        R"(\1)", R"(a{1,3}+)", R"([\W])", R"(\xff)", R"(\p)"}) {
    EXPECT_THAT(Translated(pattern), HasSubstr("is not supported")) << pattern;
  }
}

}  // namespace
}  // namespace millrace::models
