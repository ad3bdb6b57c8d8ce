// What chat templates promise beyond rendering right: user text stays marked,
// errors say where, nothing runs without end.
#include "models/text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace millrace::models {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using Json = nlohmann::ordered_json;

StatusOr<std::string> RenderMarked(std::string_view source,
                                   const Json& messages,
                                   const Json& extra = Json::object(),
                                   const ChatTemplate::Limits& limits = {}) {
  auto made = ChatTemplate::Create(source, limits);
  if (!made.ok()) return std::move(made).status();
  ChatInput input;
  input.messages = &messages;
  input.extra = &extra;
  input.bos_token = "<s>";
  ASSIGN_OR_RETURN(const std::vector<PromptPart> parts, (*made)->Render(input));
  std::string out;
  for (const PromptPart& part : parts) {
    out += part.from_user ? "[" + part.text + "]" : part.text;
  }
  return out;
}

// The rendering, with the user's parts in brackets.
std::string Marked(std::string_view source, const Json& messages = "ab c",
                   const Json& extra = Json::object()) {
  const auto out = RenderMarked(source, messages, extra);
  return out.ok() ? *out : out.status().ToString();
}

std::string ErrorOf(std::string_view source, const Json& messages = "ab c",
                    const ChatTemplate::Limits& limits = {}) {
  const auto out = RenderMarked(source, messages, Json::object(), limits);
  if (out.ok()) return "no error but: " + *out;
  EXPECT_EQ(out.status().code(), StatusCode::kInvalidArgument);
  return std::string(out.status().message());
}

TEST(ChatTemplate, MarksWhatCameFromMessagesAndNothingElse) {
  const Json messages = {{{"role", "user"}, {"content", "<|im_end|>"}}};
  EXPECT_EQ(Marked("{{ bos_token }}{% for m in messages %}"
                   "{{ '<|im_start|>' + m.role + '\n' + m['content'] + "
                   "'<|im_end|>' }}{% endfor %}",
                   messages),
            "<s><|im_start|>[user]\n[<|im_end|>]<|im_end|>");
  EXPECT_EQ(Marked("{{ x ~ '<|end|>' ~ 1 }}", messages, {{"x", "y"}}),
            "[y]<|end|>1");
}

TEST(ChatTemplate, MarksSurviveEveryStringOperation) {
  // messages is the string "ab c" here, all of it the user's.
  EXPECT_EQ(Marked("{{ ('<' ~ messages ~ '>')[1:3] }}"), "[ab]");
  EXPECT_EQ(Marked("{{ ('<' ~ messages ~ '>')[::-1] }}"), ">[c ba]<");
  EXPECT_EQ(Marked("{{ (' x' ~ messages ~ ' ') | trim }}"), "x[ab c]");
  EXPECT_EQ(Marked("{{ messages.upper() }}{{ 'x' | upper }}"), "[AB C]X");
  EXPECT_EQ(Marked("{{ ('x' ~ messages) | title }}"), "X[ab C]");
  EXPECT_EQ(Marked("{{ messages | replace('b', '<b>') }}"), "[a]<b>[ c]");
  EXPECT_EQ(Marked("{{ 'x-y' | replace('-', messages) }}"), "x[ab c]y");
  EXPECT_EQ(Marked("{{ messages.split(' ') | join('|') }}"), "[ab]|[c]");
  EXPECT_EQ(Marked("{{ '%s<%s>' | format(messages, 1) }}"), "[ab c]<1>");
  EXPECT_EQ(Marked("{{ '{}<{}>'.format(messages, 1) }}"), "[ab c]<1>");
  EXPECT_EQ(Marked("{{ messages * 2 ~ '!' }}"), "[ab cab c]!");
  EXPECT_EQ(Marked("{{ ('l\n' ~ messages) | indent(2) }}"), "l\n  [ab c]");
  EXPECT_EQ(Marked("{{ messages | truncate(3, true, '.', 0) }}"), "[ab].");
  EXPECT_EQ(Marked("{{ messages | list | last }}"), "[c]");
  EXPECT_EQ(Marked("{% for c in messages %}{{ c }}{% endfor %}"), "[ab c]");
  EXPECT_EQ(Marked("{% set x %}<{{ messages }}>{% endset %}{{ x }}"),
            "<[ab c]>");
  EXPECT_EQ(Marked("{% filter upper %}<{{ messages }}>x{% endfilter %}"),
            "<[AB C]>X");
  EXPECT_EQ(Marked("{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(messages) }}"),
            "<[ab c]>");
  EXPECT_EQ(Marked("{{ messages | e }}", "<"), "[&lt;]");
}

TEST(ChatTemplate, MarksPassThroughJsonAndRepr) {
  EXPECT_EQ(Marked("{{ {'name': messages, 'n': 1} | tojson }}", "a\"b"),
            R"({"name": ["a\"b"], "n": 1})");
  EXPECT_EQ(Marked("{{ {'k': messages} }}"), "{'k': ['ab c']}");
  // A container of the request brings its brackets and numbers along.
  EXPECT_EQ(Marked("{{ messages | tojson }}!", {{"k", {1, nullptr}}}),
            R"([{"k": [1, null]}]!)");
  EXPECT_EQ(Marked("{{ messages }}!", {{"k", {1, true}}}),
            "[{'k': [1, True]}]!");
  EXPECT_EQ(Marked("{{ messages[0] ~ ':' ~ messages | length }}", {7}),
            "[7]:1");
  EXPECT_EQ(Marked("{% for k, v in messages.items() %}{{ k ~ '=' ~ v }}"
                   "{% endfor %}",
                   {{"k", "v"}}),
            "[k]=[v]");
}

TEST(ChatTemplate, NeighboursOfOneKindAreOnePart) {
  const Json messages = "x";
  ChatInput input;
  input.messages = &messages;
  const auto made =
      ChatTemplate::Create("a{{ 'b' }}{{ messages }}{{ messages }}");
  const auto parts = (*made)->Render(input);
  ASSERT_EQ(parts->size(), 2u);
  EXPECT_EQ((*parts)[0].text, "ab");
  EXPECT_EQ((*parts)[1].text, "xx");
}

TEST(ChatTemplate, RaiseExceptionSpeaksForItself) {
  EXPECT_EQ(ErrorOf("a\n{{ raise_exception('No: ' ~ messages) }}"), "No: ab c");
  EXPECT_EQ(ErrorOf("{% macro m() %}{{ raise_exception('x') }}{% endmacro %}"
                    "{{ m() | upper }}"),
            "x");
}

TEST(ChatTemplate, ErrorsNameTheirLine) {
  EXPECT_THAT(ErrorOf("a\n\n{{ nope.x }}"),
              StartsWith("chat template, line 3: 'nope' is undefined"));
  EXPECT_THAT(ErrorOf("\n{{ 'a' + 1 }}"),
              HasSubstr("line 2: can only concatenate str (not \"int\")"));
  EXPECT_THAT(ErrorOf("\n{% if x %}"), HasSubstr("endif"));
  EXPECT_THAT(ErrorOf("{{ a b }}"), HasSubstr("expected '}}', found 'b'"));
  EXPECT_THAT(ErrorOf("{% include 'x' %}"), HasSubstr("'include' is unknown"));
  EXPECT_THAT(ErrorOf("{{ x | nope }}"), HasSubstr("no filter named 'nope'"));
  EXPECT_THAT(ErrorOf("{{ x is nope }}"), HasSubstr("no test named 'nope'"));
  EXPECT_THAT(ErrorOf("{% break %}"), HasSubstr("outside a loop"));
  EXPECT_THAT(ErrorOf("{{ messages.append }}{{ [].append(1) }}", "s"),
              HasSubstr("unsafe"));
  EXPECT_THAT(ErrorOf("\xff"), HasSubstr("UTF-8"));
}

TEST(ChatTemplate, UnknownFiltersMatterOnlyWhereTheyRun) {
  EXPECT_EQ(Marked("{% if false %}{{ 1 | nope }}{% endif %}ok"), "ok");
  EXPECT_EQ(Marked("{{ 1 | nope if false else 'ok' }}"), "ok");
  EXPECT_THAT(ErrorOf("{% if true %}{{ 1 | nope }}{% endif %}"),
              HasSubstr("filter 'nope'"));
}

TEST(ChatTemplate, StepsAreLimited) {
  const ChatTemplate::Limits limits{.max_steps = 1000};
  EXPECT_THAT(ErrorOf("{% for a in range(1000) %}{% for b in range(1000) %}"
                      "{% endfor %}{% endfor %}",
                      "x", limits),
              HasSubstr("more than 1000 steps"));
}

TEST(ChatTemplate, OutputAndValuesAreLimited) {
  const ChatTemplate::Limits limits{.max_output_bytes = 1000};
  EXPECT_THAT(ErrorOf("{% for a in range(11) %}" + std::string(99, 'x') +
                          "{% endfor %}",
                      "", limits),
              HasSubstr("longer than 1000 bytes"));
  EXPECT_THAT(ErrorOf("{% set x = 'a' * 2000 %}", "", limits),
              HasSubstr("larger than 1000"));
  // Doubling lists: 2^30 items would come of 30 lines.
  EXPECT_THAT(ErrorOf("{% set ns = namespace(x=[1]) %}{% for i in range(30) %}"
                      "{% set ns.x = ns.x + ns.x %}{% endfor %}",
                      "", limits),
              HasSubstr("bytes of values"));
  // A list of itself twice, again and again, is small until it is printed.
  const std::string twice =
      "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}"
      "{% set ns.x = [ns.x, ns.x] %}{% endfor %}";
  EXPECT_THAT(ErrorOf(twice + "{{ ns.x }}"), HasSubstr("steps"));
  EXPECT_THAT(ErrorOf(twice + "{{ ns.x | tojson }}"), HasSubstr("steps"));
}

// What a width below 0 would give back, more than all this could use up.
TEST(ChatTemplate, NegativeWidthsPayForNothing) {
  const ChatTemplate::Limits limits{.max_output_bytes = 1000};
  const std::string much =
      "{% set ns = namespace(x='a' * 900) %}{% for i in range(50) %}"
      "{% set ns.x = 'a' * 900 %}{% endfor %}";
  ASSERT_THAT(ErrorOf(much, "", limits), HasSubstr("bytes of values"));
  for (const std::string made :
       {"''|center(-2147483648)", "'a'|indent(-2147483648)",
        "'a'.ljust(-2147483648)", "'a'.zfill(-2147483648)"}) {
    EXPECT_THAT(ErrorOf("{% set y = " + made + " %}" + much, "", limits),
                HasSubstr("bytes of values"))
        << made;
  }
  EXPECT_EQ(Marked("{{ 'a'|center(-9) }}{{ 'b'|indent(-9) }}"), "ab");
  // 2^64 - 2^31, and one that is 2^64.
  for (const std::string width :
       {"18446744071562067968", "18446744073709551616", "100001"}) {
    EXPECT_THAT(ErrorOf("{{ '{:" + width + "}'.format('x') }}"),
                HasSubstr("a width is above 100000"))
        << width;
  }
}

TEST(ChatTemplate, NestingIsLimited) {
  const std::string open(5000, '('), close(5000, ')');
  EXPECT_THAT(ErrorOf("{{ " + open + "1" + close + " }}"),
              HasSubstr("nested more than 100"));
  std::string chain = "{{ x", sum = "{{ 1", nots = "{{ ", blocks;
  for (int i = 0; i < 5000; ++i) {
    chain += ".x";
    sum += "+1";
    nots += "not ";
    blocks += "{% if 1 %}";
  }
  EXPECT_THAT(ErrorOf(chain + "}}"), HasSubstr("nested more than 100"));
  EXPECT_THAT(ErrorOf(nots + "1 }}"), HasSubstr("nested more than 100"));
  EXPECT_THAT(ErrorOf(blocks), HasSubstr("nested more than 100"));
  EXPECT_EQ(Marked(sum + "}}"), "5001");  // long, but flat
  EXPECT_THAT(ErrorOf("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"),
              HasSubstr("deep"));
  EXPECT_THAT(ErrorOf("{% set ns = namespace(x=[]) %}{% for i in range(9999) %}"
                      "{% set ns.x = [ns.x] %}{% endfor %}"),
              HasSubstr("nested more than 200"));
}

TEST(ChatTemplate, SourceIsLimited) {
  EXPECT_THAT(ErrorOf("12345", "", ChatTemplate::Limits{.max_source_bytes = 4}),
              HasSubstr("5 bytes; the limit is 4"));
}

TEST(ChatTemplate, NamesGivenTwiceKeepTheMessages) {
  EXPECT_EQ(Marked("{{ messages }}{{ bos_token }}", "m",
                   {{"messages", "x"}, {"bos_token", "y"}}),
            "[my]");
}

TEST(ChatTemplate, LargeUnsignedNumbersOfARequestStayExact) {
  EXPECT_EQ(Marked("{{ messages | tojson }}", 18446744073709551615u),
            "[18446744073709551615]");
}

}  // namespace
}  // namespace millrace::models
