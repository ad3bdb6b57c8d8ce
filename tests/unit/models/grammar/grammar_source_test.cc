// Patterns, GBNF and choices in the words of the library.
#include "models/grammar/grammar_source.h"

#include <gtest/gtest.h>

#include "models/grammar/compile_child.h"
#include "models/grammar/gbnf.h"
#include "models/grammar/pattern.h"

namespace millrace::models {
namespace {

StatusOr<GrammarSource> Source(ConstraintKind kind, std::string text) {
  return SourceOf({.kind = kind, .text = std::move(text)});
}

TEST(JsonPattern, MatchesAnywhereUnlessAnchored) {
  EXPECT_EQ(*JsonPattern("^ab$"), "^(?:ab(?:))$");
  EXPECT_EQ(*JsonPattern("ab"), "^(?:.*ab.*(?:))$");
  EXPECT_EQ(*JsonPattern("^a|b$"), "^(?:a.*|.*b(?:))$");
  EXPECT_EQ(*JsonPattern("^(a|b)$"), "^(?:(a|b(?:))(?:))$");
  EXPECT_EQ(*JsonPattern("^[$^|]\\$$"), "^(?:[$^|]\\$(?:))$");
}

// The library takes more of what stands on the left than it says; that what
// stands on the right is exact is tested with it (xgrammar_test.cc).
TEST(JsonPattern, PartsEndInOneStateAndOpenCountsAreWrittenOut) {
  EXPECT_EQ(*JsonPattern("^a(bc*)?$"), "^(?:a(bc*(?:))?(?:))$");
  EXPECT_EQ(*JsonPattern("^a{0,}b{1,}c{3,}$"), "^(?:a*b+c{2}c+(?:))$");
  EXPECT_EQ(*JsonPattern("^(?:ab){2,}$"), "^(?:(?:ab(?:)){1}(?:ab(?:))+(?:))$");
  EXPECT_EQ(*JsonPattern("^\xc3\xa9{2,}[x]{2,}?$"),
            "^(?:\xc3\xa9{1}\xc3\xa9+[x]{1}[x]+?(?:))$");
  EXPECT_EQ(*JsonPattern("^a{2,5}{,3}x{$"), "^(?:a{2,5}{,3}x{(?:))$");
  for (const char* bad : {"{2,}", "a|{2,}", "({2,})", "a{2,}{2,}"}) {
    EXPECT_FALSE(JsonPattern(bad).ok()) << bad;
  }
  std::string nested = "a";
  for (int i = 0; i < 30; ++i) nested = "(" + nested + "){2,}";
  EXPECT_FALSE(JsonPattern(nested).ok());
  EXPECT_EQ(*JsonPattern("^.$"), R"(^(?:[^\u2028\u2029](?:))$)");
}

TEST(JsonPattern, SpacesAreThoseOfEcmaScript) {
  const std::string more =
      R"(\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000)";
  const std::string all = more + R"(\ufeff)";
  EXPECT_EQ(*JsonPattern("^\\S$"), "^(?:[^\\s" + all + "](?:))$");
  EXPECT_EQ(*JsonPattern("^[^\\s,]$"), "^(?:[^\\s," + all + "](?:))$");
  EXPECT_EQ(*JsonPattern("^[\\s,]\\s$"),
            "^(?:[\\s," + more + "][\\s" + more + "](?:))$");
  EXPECT_EQ(*JsonPattern("^[\\s\\S]$"), "^(?:[\\s\\S" + more + "](?:))$");
  EXPECT_EQ(*JsonPattern("^[\\\\S]$"), "^(?:[\\\\S](?:))$");
  const StatusOr<std::string> in_class = JsonPattern("^[\\S,]$");
  ASSERT_FALSE(in_class.ok());
  EXPECT_NE(in_class.status().message().find("'\\S' in a class"),
            std::string::npos);
}

TEST(JsonPattern, QuotesAndBackslashesAreWrittenAsInJson) {
  EXPECT_EQ(*JsonPattern("^\"$"), R"re(^(?:(?:\\")(?:))$)re");
  EXPECT_EQ(*JsonPattern(R"(^\\$)"), R"(^(?:(?:\\\\)(?:))$)");
  EXPECT_EQ(*JsonPattern(R"(^\x22\u005c$)"),
            R"re(^(?:(?:\\")(?:\\\\)(?:))$)re");
  EXPECT_FALSE(JsonPattern(R"(^\n$)").ok());
  EXPECT_FALSE(JsonPattern(R"(^\x01$)").ok());
}

TEST(Pattern, WhatWouldBeMisreadIsRefused) {
  for (const char* bad : {"a(?=b)", "a(?!b)", "(?<=a)b", "(?<!a)b", "(?i)a",
                          "a^b", "a$b", "(^a)", "[a", "a\\"}) {
    EXPECT_FALSE(CheckRegex(bad).ok()) << bad;
    EXPECT_FALSE(JsonPattern(bad).ok()) << bad;
  }
  for (const char* good : {"", "(?:a)", "(?<name>a)", "^a$", "[^^$]", "a|^b$",
                           "\\^\\$", "[\\]]"}) {
    EXPECT_TRUE(CheckRegex(good).ok()) << good;
  }
  EXPECT_FALSE(CheckRegex(std::string(5000, 'a')).ok());
}

TEST(Pattern, CountsAreBounded) {
  for (const char* bad : {"a{128}", "a{2,128}", "a{ 3, 999999999999}",
                          "(a{1000}){1000}", "start: \"a\" ~ 1..500"}) {
    EXPECT_FALSE(CheckRepeats(bad).ok()) << bad;
  }
  for (const char* good :
       {"a{127}", "a{12,127}", "a{2,}1000", "{x1000}", "1000"}) {
    EXPECT_TRUE(CheckRepeats(good).ok()) << good;
  }
  EXPECT_FALSE(CheckRegex("a{128}").ok());
  EXPECT_FALSE(JsonPattern("a{128}").ok());
  EXPECT_FALSE(Source(ConstraintKind::kGrammar, "root ::= \"a\"{500}").ok());
}

TEST(Pattern, WhatOnlyLooksLikeACountIsText) {
  for (const char* good : {"(costs ~200|~300) EUR", "\\{500\\}", "[{500}]",
                           R"([\]{500}])", "~ 500"}) {
    EXPECT_TRUE(CheckRegexRepeats(good).ok()) << good;
  }
  for (const char* bad :
       {R"(\\{500})", "[a]{500}", "[^]{500}]", R"([\]]{500})", "a{500"}) {
    EXPECT_FALSE(CheckRegexRepeats(bad).ok()) << bad;
  }
  EXPECT_TRUE(CheckRegex("(costs ~200|~300) EUR").ok());
  EXPECT_EQ(*JsonPattern(R"(^\{500\}$)"), R"(^(?:\{500\}(?:))$)");
}

TEST(Gbnf, WhatOnlyLooksLikeACountIsText) {
  for (const char* good :
       {R"(root ::= "{200}")", R"(root ::= [{200}] # a{500})",
        R"(root ::= "\"{200}" "~ 300")", R"(root ::= "a"{2,100})"}) {
    EXPECT_TRUE(Source(ConstraintKind::kGrammar, good).ok()) << good;
  }
  for (const char* bad :
       {R"(root ::= "{200}"{200})", R"(root ::= [a]{200})",
        "root ::= \"a\"{ # \"\n 200}", R"(root ::= Regex("a{200}"))"}) {
    EXPECT_FALSE(Source(ConstraintKind::kGrammar, bad).ok()) << bad;
  }
}

TEST(Lark, WhatOnlyLooksLikeACountIsText) {
  for (const char* good :
       {R"(start: "{200}" "~ 300"i)", R"(start: "\"~ 300")",
        "start: \"a\" ~ 1..9 // ~ 300", "# \"a\" ~ 300\nstart: \"a\"{3}",
        R"(start: /[{200}]\{300}~ 400/)", "start: <a{200}>"}) {
    EXPECT_TRUE(Source(ConstraintKind::kGrammar, good).ok()) << good;
  }
  for (const char* bad :
       {R"(start: "a" ~ 1..500)", R"(start: "{2}"~500)", R"(start: "a"{2,500})",
        R"(start: "a" ~ +500)", R"(start: /\/a{500}/)", R"(start: /"/ "a"~500)",
        "start: \"a\" // \"\n  | \"b\" ~ 500", R"(start: <"> "a" ~ 500 //")",
        R"(start: %json {"type": "string", "pattern": "a{500}"})"}) {
    EXPECT_FALSE(Source(ConstraintKind::kGrammar, bad).ok()) << bad;
  }
}

TEST(Gbnf, IsWrittenAsEbnf) {
  EXPECT_EQ(*EbnfOfGbnf("root ::= \".\" [.] # .\n"), "root ::= \".\" [.] \n");
  EXPECT_EQ(*EbnfOfGbnf("root ::= ."), R"(root ::= [\x00-\U0010FFFF])");
  EXPECT_EQ(*EbnfOfGbnf("root ::= \"a\"{,3}"), "root ::= \"a\"{0,3}");
  EXPECT_EQ(*EbnfOfGbnf("root ::= (\"a\" | )"), "root ::= (\"a\" |  \"\" )");
  EXPECT_FALSE(EbnfOfGbnf("root ::= <[5]>").ok());
  EXPECT_FALSE(EbnfOfGbnf("root ::= \"a").ok());
}

TEST(GrammarSource, ChoicesAreEscaped) {
  const auto source = Source(ConstraintKind::kChoice, R"(["a\"b", "c\n"])");
  ASSERT_TRUE(source.ok());
  EXPECT_EQ(source->text, "root ::= \"a\\\"b\" | \"c\\x0a\"\n");
  for (const char* bad : {"[]", "[1]", "{}", "[", "\"a\""}) {
    EXPECT_FALSE(Source(ConstraintKind::kChoice, bad).ok()) << bad;
  }
}

TEST(GrammarSource, LarkIsWhatHasNoRuleOfEbnf) {
  EXPECT_EQ(Source(ConstraintKind::kGrammar, "start: \"a\"")->kind,
            GrammarSource::Kind::kLark);
  EXPECT_EQ(Source(ConstraintKind::kGrammar, "root ::= \"a\"")->kind,
            GrammarSource::Kind::kEbnf);
}

TEST(GrammarSource, SchemasOfAStructuralTagAreHeldToTheSameRules) {
  const auto tag = [](const std::string& schema) {
    return Source(ConstraintKind::kStructuralTag,
                  R"({"format": {"type": "json_schema", "json_schema": )" +
                      schema + "}}");
  };
  EXPECT_NE(tag(R"({"allOf": [{"type": "null"}]})")
                ->text.find(R"("json_schema":{"type":"null"})"),
            std::string::npos);
  EXPECT_FALSE(tag(R"({"not": {}})").ok());
}

TEST(GrammarSource, TheOlderShapeOfAStructuralTagBecomesTheNewOne) {
  const auto tag = [](const std::string& structure) {
    return Source(ConstraintKind::kStructuralTag,
                  R"({"type": "structural_tag", "triggers": ["<f"],
                      "structures": [)" +
                      structure + "]}");
  };
  const auto source =
      tag(R"({"begin": "<f>", "schema": {"type": "null"}, "end": "</f>"})");
  ASSERT_TRUE(source.ok());
  EXPECT_EQ(source->text,
            R"({"type":"structural_tag","format":{"type":"triggered_tags",)"
            R"("triggers":["<f"],"tags":[{"type":"tag","begin":"<f>",)"
            R"("content":{"type":"json_schema","json_schema":)"
            R"({"type":"null"}},"end":"</f>"}]}})");
  EXPECT_FALSE(
      tag(R"({"begin": "<f>", "schema": {"not": {}}, "end": "x"})").ok());
  EXPECT_FALSE(tag(R"({"schema": {}, "end": "x"})").ok());
  EXPECT_FALSE(tag("5").ok());
}

TEST(GrammarSource, CountsAreBoundedWhereverTheyStand) {
  const auto regex = [](const std::string& text) {
    return Source(ConstraintKind::kRegex, text).ok();
  };
  for (const char* space : {" ", "\t", "\n", "\r", " \n "}) {
    EXPECT_FALSE(regex("a{" + std::string(space) + "5000}"));
    EXPECT_FALSE(Source(ConstraintKind::kGrammar,
                        "root ::= \"a\"{" + std::string(space) + "5000}")
                     .ok());
  }
  EXPECT_TRUE(regex("(a{1,10}b{100}){10}c{100}"));
  EXPECT_FALSE(regex("(a{1,10}b{101}){10}"));
  EXPECT_FALSE(regex("((a{11})?[)]{2}\\)){100}"));
  const auto gbnf = [](const std::string& rule) {
    return Source(ConstraintKind::kGrammar, "root ::= " + rule).ok();
  };
  EXPECT_TRUE(gbnf(R"x(("a"{10} b{100}){10} "c"{100})x"));
  EXPECT_FALSE(gbnf(R"x(("a"{ 11 } [)] ")" | b){100})x"));
}

TEST(GrammarSource, GroupsOfAPatternAreClosed) {
  for (const char* text : {"a)|(b", "(a", "a)", "(a|b))c("}) {
    EXPECT_FALSE(Source(ConstraintKind::kRegex, text).ok()) << text;
    EXPECT_FALSE(JsonPattern(text).ok()) << text;
  }
  EXPECT_TRUE(JsonPattern(R"x([)]\)(a|b)y)x").ok());
}

TEST(GrammarSource, PartsOfATagAreHeldToTheRulesOfEach) {
  const auto tag = [](const std::string& format) {
    return Source(ConstraintKind::kStructuralTag,
                  R"({"type": "structural_tag", "format": )" + format + "}");
  };
  EXPECT_FALSE(tag(R"x({"type": "regex", "pattern": "a(?=b)"})x").ok());
  EXPECT_FALSE(tag(R"({"type": "regex", "pattern": "a{500}"})").ok());
  // No pattern.
  EXPECT_TRUE(tag(R"({"type": "tag", "begin": "about ~200 words {500}",
                      "content": {"type": "any_text"}, "end": "{300}"})")
                  .ok());
  EXPECT_TRUE(tag(R"({"type": "regex", "pattern": "ab"})").ok());
  const auto grammar =
      tag(R"({"type": "grammar", "grammar": "root ::= . | "})");
  ASSERT_TRUE(grammar.ok()) << grammar.status().ToString();
  EXPECT_NE(grammar->text.find("U0010FFFF"), std::string::npos);
}

TEST(GrammarSource, TextIsBoundedAndUtf8) {
  EXPECT_FALSE(Source(ConstraintKind::kGrammar,
                      "root ::= " + std::string(kMaxConstraintBytes, 'a'))
                   .ok());
  EXPECT_FALSE(Source(ConstraintKind::kRegex, "\xff").ok());
  EXPECT_FALSE(Source(ConstraintKind::kRegex, std::string("a\0b", 3)).ok());
}

TEST(CompileJob, ComesBackAsItWas) {
  // As the client wrote it: the child checks it, within its limits.
  const OutputConstraint constraint = {.kind = ConstraintKind::kGrammar,
                                       .text = "start: \"a\""};
  const TokenTexts tokens = {{"a", "", "bc"}, 5, {1, 4}};
  const std::string bytes = EncodeJob(constraint, tokens);
  const StatusOr<CompileJob> job = DecodeJob(bytes);
  ASSERT_TRUE(job.ok());
  EXPECT_EQ(job->constraint, constraint);
  EXPECT_EQ(job->tokens.texts, tokens.texts);
  EXPECT_EQ(job->tokens.vocab_size, 5);
  EXPECT_EQ(job->tokens.stop_ids, tokens.stop_ids);
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(DecodeJob(std::string_view(bytes).substr(0, size)).ok());
  }
}

}  // namespace
}  // namespace millrace::models
