// The arguments of verbs, as people type them.
#include "server/cli/args.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "server/cli/examples.h"

namespace millrace::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr FlagSpec kFlags[] = {{"ctx", "N", "tokens", "c"},
                               {"raw", "", "switch"}};
constexpr VerbSpec kVerb = {"inspect", "FILE", "looks", kFlags, 1, 2};

StatusOr<ParsedArgs> Parse(std::vector<std::string> args) {
  return ParsedArgs::Parse(kVerb, args);
}

TEST(Args, FlagsAndPositionalsMix) {
  const auto args = Parse({"a.gguf", "--ctx", "8", "--raw", "b"});
  ASSERT_TRUE(args.ok()) << args.status().ToString();
  EXPECT_THAT(args->positional(), ElementsAre("a.gguf", "b"));
  EXPECT_EQ(args->Int("ctx", 1, 0, 100).value(), 8);
  EXPECT_TRUE(args->Has("raw"));
}

TEST(Args, EqualsSignAndOneDashMeanTheSame) {
  const auto args = Parse({"-ctx=8", "a"});
  ASSERT_TRUE(args.ok()) << args.status().ToString();
  EXPECT_EQ(args->Text("ctx", ""), "8");
  EXPECT_FALSE(args->Has("raw"));
}

TEST(Args, AnotherNameOfAFlagIsTheFlag) {
  const auto args = Parse({"-c", "8", "a"});
  ASSERT_TRUE(args.ok()) << args.status().ToString();
  EXPECT_EQ(args->Int("ctx", 1, 0, 100).value(), 8);
}

TEST(Args, OnlyANearFlagIsSuggested) {
  EXPECT_EQ(Parse({"a", "--cxt", "8"}).status().message(),
            "there is no flag --cxt; did you mean --ctx? (millrace inspect "
            "--help lists the flags)");
  EXPECT_EQ(Parse({"a", "--foo=8"}).status().message(),
            "there is no flag --foo; millrace inspect --help lists the flags");
}

TEST(Args, HelpEndsWithExamplesAndIsNotTooWide) {
  const std::string help = HelpText(kVerb);
  EXPECT_THAT(help, HasSubstr("  --ctx N                 tokens; also -c\n"));
  EXPECT_THAT(help, HasSubstr("\nexamples:\n  millrace inspect "));
  EXPECT_TRUE(help.ends_with(".onnx\n")) << help;
}

TEST(Args, EveryVerbHasTwoExamplesThatItTakes) {
  const std::vector<const VerbSpec*> verbs = {
      &InspectVerb(),  &TopologyVerb(), &BenchVerb(),
      &LogitsVerb(),   &GraphVerb(),    &ProfileVerb(),
      &QuantizeVerb(), &ConvertVerb(),  &MigrateVerb()};
  for (const VerbSpec* verb : verbs) {
    std::istringstream text(ExamplesText(verb->name));
    int num_examples = 0;
    for (std::string line; std::getline(text, line);) {
      if (!line.starts_with("  ")) continue;
      ++num_examples;
      EXPECT_LE(line.size(), 80u) << line;
      std::istringstream in(line);
      std::string program, name;
      in >> program >> name;
      EXPECT_EQ(program + " " + name, "millrace " + std::string(verb->name));
      const std::vector<std::string> args(
          std::istream_iterator<std::string>(in), {});
      // What stands in quotes is one argument to a shell.
      if (line.find('"') != line.npos) continue;
      const auto parsed = ParsedArgs::Parse(*verb, args);
      EXPECT_TRUE(parsed.ok()) << line << ": " << parsed.status().ToString();
    }
    EXPECT_EQ(num_examples, 2) << verb->name;
  }
}

TEST(Args, AfterTwoDashesNothingIsAFlag) {
  const auto args = Parse({"--", "--raw"});
  ASSERT_TRUE(args.ok());
  EXPECT_THAT(args->positional(), ElementsAre("--raw"));
}

TEST(Args, MistakesAreUsageErrors) {
  for (const auto& [line, words] :
       std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"a", "--ctxx", "8"}, "ctxx"},
           {{"a", "--ctx"}, "needs a value"},
           {{"a", "--raw=1"}, "no value"},
           {{}, "FILE"},
           {{"a", "b", "c"}, "3 arguments"}}) {
    const auto args = Parse(line);
    ASSERT_FALSE(args.ok()) << words;
    EXPECT_EQ(args.status().reason(), "usage");
    EXPECT_THAT(std::string(args.status().message()), HasSubstr(words));
  }
}

TEST(Args, NumbersHaveBounds) {
  const auto args = Parse({"a", "--ctx", "101"});
  EXPECT_THAT(std::string(args->Int("ctx", 1, 0, 100).status().message()),
              HasSubstr("0 to 100"));
  EXPECT_FALSE(Parse({"a", "--ctx", "8x"})->Int("ctx", 1, 0, 100).ok());
  EXPECT_EQ(Parse({"a"})->Int("ctx", 7, 0, 100).value(), 7);
}

TEST(Args, ListsOfNumbers) {
  EXPECT_THAT(Parse({"a", "--ctx", "1,4,16"})->Ints("ctx", {}, 0, 100).value(),
              ElementsAre(1, 4, 16));
  EXPECT_THAT(Parse({"a"})->Ints("ctx", {2, 3}, 0, 100).value(),
              ElementsAre(2, 3));
  EXPECT_FALSE(Parse({"a", "--ctx", "1,,2"})->Ints("ctx", {}, 0, 9).ok());
  EXPECT_FALSE(Parse({"a", "--ctx", "1,"})->Ints("ctx", {}, 0, 9).ok());
}

TEST(Args, ExitCodesTellUsageFromFailure) {
  const std::vector<std::string> good = {"a"};
  const std::vector<std::string> bad = {"--nothing"};
  const std::vector<std::string> help = {"--help"};
  EXPECT_EQ(RunVerb(kVerb, good, [](const ParsedArgs&) { return OkStatus(); }),
            0);
  EXPECT_EQ(RunVerb(kVerb, good,
                    [](const ParsedArgs&) { return InvalidArgument("file"); }),
            1);
  EXPECT_EQ(RunVerb(kVerb, good,
                    [](const ParsedArgs&) { return UsageError("flag"); }),
            2);
  EXPECT_EQ(RunVerb(kVerb, bad, [](const ParsedArgs&) { return OkStatus(); }),
            2);
  EXPECT_EQ(RunVerb(kVerb, help,
                    [](const ParsedArgs&) { return Internal("not called"); }),
            0);
}

}  // namespace
}  // namespace millrace::server
