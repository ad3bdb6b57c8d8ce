// The library itself over a vocabulary of all bytes and a few longer tokens.
#include "models/grammar/xgrammar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "models/grammar/format_pattern.h"
#include "models/grammar/pattern.h"

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

  // A string with this pattern, as schemas are rewritten to.
  StatusOr<std::shared_ptr<const TokenGrammar>> MakeString(
      const std::string& pattern) {
    std::string escaped;
    for (const char c : pattern) {
      if (c == '\\') escaped += c;
      escaped += c;
    }
    return Make(GrammarSource::Kind::kJsonSchema,
                R"({"type": "string", "pattern": ")" + escaped + "\"}");
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

TEST_F(XgrammarTest, TextWithoutAChoiceIsKnownAhead) {
  const auto grammar = Make(GrammarSource::Kind::kRegex, "abc(d|e)fgh");
  ASSERT_TRUE(grammar.ok()) << grammar.status().ToString();
  const auto matcher = (*grammar)->NewMatcher();
  const Ids begin = Allowed(*matcher);
  EXPECT_EQ(matcher->ForcedTokens(8), (Ids{260, 'c'}));  // "ab" is a token
  EXPECT_EQ(matcher->ForcedTokens(1), (Ids{260}));
  EXPECT_EQ(matcher->ForcedTokens(0), Ids{});
  EXPECT_EQ(Allowed(*matcher), begin) << "they are not accepted";
  EXPECT_TRUE(matcher->Accept(260));
  EXPECT_EQ(Allowed(*matcher), Ids{'c'});
  EXPECT_EQ(matcher->ForcedTokens(8), Ids{'c'});
  EXPECT_TRUE(matcher->Accept('c'));
  EXPECT_EQ(matcher->ForcedTokens(8), Ids{}) << "a choice";
  EXPECT_EQ(Allowed(*matcher), (Ids{'d', 'e'}));
  EXPECT_TRUE(matcher->Accept('e'));
  EXPECT_EQ(matcher->ForcedTokens(8), (Ids{'f', 'g', 'h'}));
  matcher->Rollback(1);
  EXPECT_EQ(matcher->ForcedTokens(8), Ids{});
  matcher->Rollback(1);
  EXPECT_EQ(matcher->ForcedTokens(8), Ids{'c'});
  for (const char c : std::string("cdfgh")) EXPECT_TRUE(matcher->Accept(c));
  EXPECT_EQ(matcher->ForcedTokens(8), Ids{}) << "only the end is left";
  EXPECT_TRUE(matcher->Accept(kEnd));
  EXPECT_EQ(matcher->ForcedTokens(8), Ids{});
}

TEST_F(XgrammarTest, TextWithoutAnEndIsKnownAsFarAsIsAsked) {
  const auto grammar = Make(GrammarSource::Kind::kEbnf, "root ::= \"xy\" root");
  ASSERT_TRUE(grammar.ok()) << grammar.status().ToString();
  const auto matcher = (*grammar)->NewMatcher();
  EXPECT_EQ(matcher->ForcedTokens(3), (Ids{'x', 'y', 'x'}));
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

// A regular expression over a and b, and what it means: the places where a
// match may end that begins at one of these.
using Places = std::set<size_t>;
struct Expression {
  std::string text;
  std::function<Places(const std::string&, const Places&)> ends;
};

Expression OneOf(const char* text, const std::string& chars) {
  return {text, [chars](const std::string& of, const Places& from) {
            Places to;
            for (const size_t i : from) {
              if (i < of.size() && chars.find(of[i]) != chars.npos) {
                to.insert(i + 1);
              }
            }
            return to;
          }};
}
Expression Behind(const Expression& a, const Expression& b) {
  return {a.text + b.text, [=](const std::string& of, const Places& from) {
            return b.ends(of, a.ends(of, from));
          }};
}
Expression Either(const Expression& a, const Expression& b) {
  return {a.text + "|" + b.text,
          [=](const std::string& of, const Places& from) {
            Places to = a.ends(of, from);
            to.merge(b.ends(of, from));
            return to;
          }};
}
Expression Counted(const Expression& a, const char* count, int least,
                   int most) {
  return {a.text + count, [=](const std::string& of, const Places& from) {
            Places to;
            Places now = from;
            for (int i = 0; i <= most; ++i) {
              if (i >= least) to.insert(now.begin(), now.end());
              now = a.ends(of, now);
            }
            return to;
          }};
}

class Expressions {
 public:
  Expression Next(int depth = 2) {
    Expression all = {
        "", [](const std::string&, const Places& from) { return from; }};
    for (unsigned left = random_() % 3 + (depth == 2); left > 0; --left) {
      all = Behind(all, Count(Item(depth)));
    }
    return all;
  }

 private:
  Expression Item(int depth) {
    if (depth == 0 || random_() % 2 == 0) {
      const Expression items[] = {OneOf("a", "a"), OneOf("b", "b"),
                                  OneOf("[ab]", "ab"), OneOf("[^a]", "b"),
                                  OneOf(".", "ab")};
      return items[random_() % 5];
    }
    Expression group = Next(depth - 1);
    for (unsigned left = random_() % 3; left > 0; --left) {
      group = Either(group, Next(depth - 1));
    }
    group.text = (random_() % 2 == 0 ? "(" : "(?:") + group.text + ")";
    return group;
  }
  Expression Count(const Expression& item) {
    constexpr int kAny = 8;  // more than a text has characters
    constexpr struct {
      const char* text;
      int least, most;
    } kCounts[] = {{"?", 0, 1},       {"*", 0, kAny},    {"+", 1, kAny},
                   {"{2}", 2, 2},     {"{0,2}", 0, 2},   {"{1,2}", 1, 2},
                   {"{1,}", 1, kAny}, {"{2,}", 2, kAny}, {"{3,}", 3, kAny},
                   {"{0,1}", 0, 1},   {"*?", 0, kAny}};
    if (random_() % 2 == 0) return item;
    const auto& count = kCounts[random_() % std::size(kCounts)];
    return Counted(item, count.text, count.least, count.most);
  }

  std::mt19937 random_{7};
};

// Whether the string is taken whole.
bool Takes(const TokenGrammar& grammar, const std::string& text) {
  const auto matcher = grammar.NewMatcher();
  for (const char c : "\"" + text + "\"") {
    if (!matcher->Accept(static_cast<uint8_t>(c))) return false;
  }
  return matcher->Accept(kEnd);
}

TEST_F(XgrammarTest, PatternsOfSchemasAreTakenExactly) {
  const Expression a = OneOf("a", "a"), b = OneOf("b", "b");
  Expression group = Behind(b, Counted(a, "*", 0, 9));
  group.text = "(" + group.text + ")";
  std::vector<Expression> expressions = {
      Counted(group, "?", 0, 1), Either(Counted(a, "{1,2}", 1, 2), a),
      Either(a, Behind(a, Counted(b, "{0,1}", 0, 1)))};
  Expressions random;
  while (expressions.size() < 300) expressions.push_back(random.Next());
  for (const Expression& expression : expressions) {
    const StatusOr<std::string> exact =
        JsonPattern("^(?:" + expression.text + ")$");
    ASSERT_TRUE(exact.ok()) << expression.text << exact.status().ToString();
    const auto grammar = MakeString(*exact);
    ASSERT_TRUE(grammar.ok()) << expression.text << grammar.status().ToString();
    for (unsigned bits = 1; bits < 64; ++bits) {  // behind its first one
      std::string text;
      for (unsigned rest = bits; rest > 1; rest /= 2) {
        text += rest % 2 == 0 ? 'a' : 'b';
      }
      ASSERT_EQ(Takes(**grammar, text),
                expression.ends(text, {0}).contains(text.size()))
          << expression.text << " and " << text;
    }
  }
}

TEST_F(XgrammarTest, FormatsAndLengthsAreTakenExactly) {
  const struct {
    const char* format;
    std::vector<std::string> right, wrong;
  } cases[] = {
      {"date", {"2024-02-29"}, {"2023-02-29", "2024-04-31", "0000-01-01"}},
      {"time", {"23:59:59.5+01:00"}, {"23:59:60Z", "23:59:59"}},
      {"ipv4", {"255.0.19.200"}, {"256.0.0.1", "1.2.3.04", "1.2.3"}},
      {"ipv6", {"::", "1::8", "::ffff:1.2.3.4"}, {"1::2::3", "::1.2.3.04"}},
      {"hostname",
       {"a", "3com.com", std::string(31, 'a')},
       {"-a", "a-", "a..b", "xn--x", std::string(64, 'a')}},
      {"json-pointer", {"", "/a~0b/~1"}, {"a", "/~2", "/a\"b"}},
      {"relative-json-pointer", {"0#", "1/a"}, {"01", "1/\"", "/a"}},
  };
  for (const auto& [format, right, wrong] : cases) {
    const StatusOr<std::string> pattern = JsonPattern(FormatPattern(format));
    ASSERT_TRUE(pattern.ok()) << format << pattern.status().ToString();
    const auto grammar = MakeString(*pattern);
    ASSERT_TRUE(grammar.ok()) << format << grammar.status().ToString();
    for (const auto& text : right) EXPECT_TRUE(Takes(**grammar, text)) << text;
    for (const auto& text : wrong) EXPECT_FALSE(Takes(**grammar, text)) << text;
  }
  // As schema_types.cc writes lengths.
  const auto least = MakeString("^.{3,}$"), both = MakeString("^.{2,4}$");
  ASSERT_TRUE(least.ok() && both.ok());
  for (size_t n = 0; n < 9; ++n) {
    EXPECT_EQ(Takes(**least, std::string(n, 'a')), n >= 3) << n;
    EXPECT_EQ(Takes(**both, std::string(n, 'a')), n >= 2 && n <= 4) << n;
  }
}

}  // namespace
}  // namespace millrace::models
