// The library itself over a vocabulary of all bytes and a few longer tokens.
#include "models/grammar/xgrammar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace millrace::models {
namespace {

constexpr int32_t kEnd = 256;  // ends a completion
constexpr int32_t kVocab = 300;

TokenTexts Tokens() {
  TokenTexts tokens = {{}, kVocab, {kEnd}};
  for (int i = 0; i < 256; ++i) {
    tokens.texts.emplace_back(1, static_cast<char>(i));
  }
  for (const char* text : {"", "{\"", "\": ", "true", "ab", "\xc3\xa9"}) {
    tokens.texts.emplace_back(text);
  }
  return tokens;
}

class XgrammarTest : public ::testing::Test {
 protected:
  void SetUp() override {
#ifndef MILLRACE_HAS_XGRAMMAR
    EXPECT_EQ(Xgrammar::Open().status().code(),
              StatusCode::kFailedPrecondition);
    GTEST_SKIP() << "this build is without xgrammar";
#endif
    const auto xgrammar = Xgrammar::Open();
    ASSERT_TRUE(xgrammar.ok()) << xgrammar.status().ToString();
    const auto vocabulary = (*xgrammar)->MakeVocabulary(Tokens());
    ASSERT_TRUE(vocabulary.ok()) << vocabulary.status().ToString();
    vocabulary_ = *vocabulary;
  }

  StatusOr<std::shared_ptr<const TokenGrammar>> Make(GrammarSource::Kind kind,
                                                     const std::string& text) {
    ASSIGN_OR_RETURN(const std::string bytes,
                     vocabulary_->Compile({kind, text}));
    return vocabulary_->Load(bytes);
  }

  std::shared_ptr<const XgrammarVocabulary> vocabulary_;
};

std::vector<int32_t> Allowed(GrammarMatcher& matcher) {
  std::vector<uint32_t> mask((kVocab + 31) / 32, 0xdeadbeef);
  matcher.Fill(mask);
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < static_cast<int32_t>(mask.size()) * 32; ++id) {
    if (mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) ids.push_back(id);
  }
  return ids;
}

using Ids = std::vector<int32_t>;

TEST_F(XgrammarTest, AllowsTheNextTokensAndThenTheEnd) {
  const auto grammar = Make(GrammarSource::Kind::kRegex, "a(b|c)");
  ASSERT_TRUE(grammar.ok()) << grammar.status().ToString();
  EXPECT_GT((*grammar)->memory_bytes(), 0);
  const auto matcher = (*grammar)->NewMatcher();
  EXPECT_EQ(Allowed(*matcher), (Ids{'a', 260}));  // "ab" is a token
  EXPECT_FALSE(matcher->Accept('b'));
  EXPECT_TRUE(matcher->Accept('a'));
  EXPECT_EQ(Allowed(*matcher), (Ids{'b', 'c'}));
  EXPECT_TRUE(matcher->Accept('c'));
  EXPECT_EQ(Allowed(*matcher), (Ids{kEnd}));
  EXPECT_TRUE(matcher->Accept(kEnd));
  EXPECT_EQ(Allowed(*matcher), (Ids{kEnd})) << "also behind the end";
  EXPECT_FALSE(matcher->Accept('a'));
  matcher->Rollback(2);
  EXPECT_EQ(Allowed(*matcher), (Ids{'b', 'c'}));
}

TEST_F(XgrammarTest, MasksDependOnTheAcceptedTokensAlone) {
  const auto grammar =
      Make(GrammarSource::Kind::kJsonSchema,
           R"({"type": "object", "properties": {"a": {"type": "string"}},
          "required": ["a"], "additionalProperties": false})");
  ASSERT_TRUE(grammar.ok()) << grammar.status().ToString();
  std::mt19937 random(1);
  for (int round = 0; round < 20; ++round) {
    const auto matcher = (*grammar)->NewMatcher();
    Ids accepted;
    for (int step = 0; step < 40; ++step) {
      const Ids allowed = Allowed(*matcher);
      ASSERT_FALSE(allowed.empty());
      if (!accepted.empty() && random() % 4 == 0) {
        const auto n = static_cast<int32_t>(random() % accepted.size()) + 1;
        matcher->Rollback(n);
        accepted.resize(accepted.size() - static_cast<size_t>(n));
      } else {
        const int32_t id = allowed[random() % allowed.size()];
        if (!matcher->Accept(id)) break;  // behind the end
        accepted.push_back(id);
      }
      const auto fresh = (*grammar)->NewMatcher();
      for (const int32_t id : accepted) ASSERT_TRUE(fresh->Accept(id));
      ASSERT_EQ(Allowed(*matcher), Allowed(*fresh));
    }
  }
}

TEST_F(XgrammarTest, EachKindOfGrammarIsTaken) {
  using Kind = GrammarSource::Kind;
  for (const auto& [kind, text] : std::vector<std::pair<Kind, std::string>>{
           {Kind::kJsonSchema, R"({"type": "null"})"},
           {Kind::kRegex, "[a-z]+"},
           {Kind::kEbnf, "root ::= \"a\" | [b-d]"},
           {Kind::kLark, "start: \"a\""},
           {Kind::kStructuralTag,
            R"({"type": "structural_tag",
                "format": {"type": "const_string", "value": "x"}})"}}) {
    const auto grammar = Make(kind, text);
    EXPECT_TRUE(grammar.ok()) << text << ": " << grammar.status().ToString();
  }
}

TEST_F(XgrammarTest, WhatItDoesNotTakeIsRefusedInItsWords) {
  const auto bad = Make(GrammarSource::Kind::kEbnf, "root ::= x");
  EXPECT_EQ(bad.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(bad.status().message().find("\"x\" is not defined"),
            std::string::npos)
      << bad.status().ToString();
  EXPECT_EQ(Make(GrammarSource::Kind::kEbnf, "root ::= root").status().code(),
            StatusCode::kInvalidArgument);
}

TEST_F(XgrammarTest, WhiteSpaceIsBounded) {
  const auto grammar = Make(GrammarSource::Kind::kJsonSchema,
                            R"({"type": "array", "items": {"type": "null"},
                                "minItems": 1})");
  ASSERT_TRUE(grammar.ok()) << grammar.status().ToString();
  const auto matcher = (*grammar)->NewMatcher();
  ASSERT_TRUE(matcher->Accept('['));
  int blanks = 0;
  while (matcher->Accept(' ')) ASSERT_LT(++blanks, 100);
  EXPECT_EQ(blanks, kMaxJsonWhiteSpace);
}

// Bytes in the shape of UTF-8 that stand for no character.
TEST_F(XgrammarTest, OnlyValidCharactersAreWritten) {
  const auto grammar =
      Make(GrammarSource::Kind::kJsonSchema, R"({"type": "string"})");
  ASSERT_TRUE(grammar.ok()) << grammar.status().ToString();
  const auto takes = [&](const std::string& text) {
    const auto matcher = (*grammar)->NewMatcher();
    for (const char c : "\"" + text + "\"") {
      const auto id = static_cast<uint8_t>(c);
      const auto allowed = Allowed(*matcher);
      const bool is_allowed = std::ranges::count(allowed, id) > 0;
      EXPECT_EQ(matcher->Accept(id), is_allowed) << text;
      if (!is_allowed) return false;
    }
    return true;
  };
  EXPECT_TRUE(takes("\xc3\xa9 \xe0\xa0\x80 \xed\x9f\xbf \xf4\x8f\xbf\xbf"));
  EXPECT_FALSE(takes("\xed\xa0\x80"));      // a surrogate
  EXPECT_FALSE(takes("\xe0\x80\x80"));      // overlong
  EXPECT_FALSE(takes("\xc0\x80"));          // overlong
  EXPECT_FALSE(takes("\xf0\x80\x80\x80"));  // overlong
  EXPECT_FALSE(takes("\xf4\x90\x80\x80"));  // beyond U+10FFFF
  EXPECT_FALSE(takes("\xf5\x80\x80\x80"));

  // Taken back, the state is as it was.
  const auto matcher = (*grammar)->NewMatcher();
  for (const int id : {0x22, 0xed, 0x9f}) ASSERT_TRUE(matcher->Accept(id));
  matcher->Rollback(1);
  EXPECT_FALSE(matcher->Accept(0xa0));
  EXPECT_TRUE(matcher->Accept(0x80));
}

}  // namespace
}  // namespace millrace::models
