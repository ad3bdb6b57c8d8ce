// The cuts that each rule makes. The expected pieces follow from the published
// expressions of the models, by hand.
#include "models/text/pretokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace millrace::models {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> Cut(std::string_view name, std::string_view text) {
  const auto cutter = Pretokenizer::Create(name);
  EXPECT_TRUE(cutter.ok()) << cutter.status().ToString();
  std::vector<std::string> out;
  (*cutter)->Cut(text, [&](std::string_view p) { out.emplace_back(p); });
  return out;
}

TEST(Pretokenizer, Gpt2KeepsTheSpaceWithTheWordAndDigitsTogether) {
  EXPECT_THAT(Cut("gpt-2", "I'm  at 1234 ok!?"),
              ElementsAre("I", "'m", " ", " at", " 1234", " ok", "!?"));
  EXPECT_THAT(Cut("gpt-2", "I'M"), ElementsAre("I", "'", "M"));
  EXPECT_THAT(Cut("gpt-2", "a \n"), ElementsAre("a", " \n"));
}

TEST(Pretokenizer, SmolLmSplitsDigitsBeforeSpacesSeeThem) {
  EXPECT_THAT(Cut("smollm", "at  12"), ElementsAre("at", "  ", "1", "2"));
  EXPECT_THAT(Cut("smollm", "½a٣"), ElementsAre("½", "a", "٣"));
}

TEST(Pretokenizer, Llama3GroupsThreeDigitsAndTakesOneMarkWithTheWord) {
  EXPECT_THAT(Cut("llama-bpe", "12345 (word)\n\n x'LL"),
              ElementsAre("123", "45", " (", "word", ")\n\n", " x", "'LL"));
  EXPECT_THAT(Cut("llama3", "a  \n  b"), ElementsAre("a", "  \n", " ", " b"));
}

TEST(Pretokenizer, Qwen2TakesDigitsOneByOne) {
  EXPECT_THAT(Cut("qwen2", "x 12"), ElementsAre("x", " ", "1", "2"));
}

// Pieces of the package tokenizers 0.23.3 with the expressions of Mistral
// Nemo's and GPT-4o's tokenizers.
TEST(Pretokenizer, TekkenAndGpt4oCutWhereACapitalFollows) {
  const struct {
    const char* name;
    std::string text;
    std::vector<std::string> pieces;
  } cases[] = {
      {"tekken",
       "Hello WORLD, it's CamelCaseWord's 12345",
       {"Hello", " WORLD", ",", " it", "'s", " Camel", "Case", "Word", "'s",
        " ", "1", "2", "3", "4", "5"}},
      {"tekken",
       "HTTPServer'll  run\n\n  x/y//\n z",
       {"HTTPServer", "'ll", " ", " run", "\n\n", " ", " x", "/y", "//\n",
        " z"}},
      {"tekken",
       "\xc3\x9c"
       "ber \xc4\xb0"
       "stanbul \xc7\x85"
       "a \xe6\xb0\xb4"
       "\xe7\x81\xab"
       "A\xe6\xb0\xb4"
       "a e\xcc\x81"
       "\xcc\x81"
       "E",
       {"\xc3\x9c"
        "ber",
        " \xc4\xb0"
        "stanbul",
        " \xc7\x85"
        "a",
        " \xe6\xb0\xb4"
        "\xe7\x81\xab"
        "A\xe6\xb0\xb4"
        "a",
        " e\xcc\x81"
        "\xcc\x81"
        "",
        "E"}},
      {"tekken",
       "don'T I'M 'S ''",
       {"don", "'T", " I", "'M", " '", "S", " ''"}},
      {"tekken",
       "a\xe1\xa0\x8e"
       "b \xc2\xa0"
       "c  ",
       {"a",
        "\xe1\xa0\x8e"
        "b",
        " ",
        "\xc2\xa0"
        "c",
        "  "}},
      {"gpt-4o",
       "Hello WORLD, it's CamelCaseWord's 12345",
       {"Hello", " WORLD", ",", " it's", " Camel", "Case", "Word's", " ", "123",
        "45"}},
      {"gpt-4o",
       "HTTPServer'll  run\n\n  x/y//\n z",
       {"HTTPServer'll", " ", " run", "\n\n", " ", " x", "/y", "//\n", " z"}},
      {"gpt-4o",
       "\xc3\x9c"
       "ber \xc4\xb0"
       "stanbul \xc7\x85"
       "a \xe6\xb0\xb4"
       "\xe7\x81\xab"
       "A\xe6\xb0\xb4"
       "a e\xcc\x81"
       "\xcc\x81"
       "E",
       {"\xc3\x9c"
        "ber",
        " \xc4\xb0"
        "stanbul",
        " \xc7\x85"
        "a",
        " \xe6\xb0\xb4"
        "\xe7\x81\xab"
        "A\xe6\xb0\xb4"
        "a",
        " e\xcc\x81"
        "\xcc\x81"
        "",
        "E"}},
      {"gpt-4o", "don'T I'M 'S ''", {"don'T", " I'M", " '", "S", " ''"}},
      {"gpt-4o",
       "a\xe1\xa0\x8e"
       "b \xc2\xa0"
       "c  ",
       {"a",
        "\xe1\xa0\x8e"
        "b",
        " ",
        "\xc2\xa0"
        "c",
        "  "}},
  };
  for (const auto& c : cases)
    EXPECT_EQ(Cut(c.name, c.text), c.pieces) << c.text;
}

TEST(Pretokenizer, SpacesAreThoseOfUnicode) {
  // U+180E lost the property in Unicode 6.3; U+3000 has it.
  EXPECT_THAT(Cut("gpt-2", "a\u180e\u3000b"),
              ElementsAre("a", "\u180e", "\u3000", "b"));
}

TEST(Pretokenizer, NothingIsLostOfALongRunOfSpaces) {
  // Each rule steps back over the run when no line ends it.
  const std::string text = std::string(1 << 20, ' ') + "x";
  for (const char* name :
       {"gpt-2", "smollm", "llama-bpe", "qwen2", "tekken", "gpt-4o"}) {
    EXPECT_THAT(Cut(name, text),
                ElementsAre(std::string((1 << 20) - 1, ' '), " x"))
        << name;
  }
}

TEST(Pretokenizer, UnknownNameListsTheKnownOnes) {
  const auto cutter = Pretokenizer::Create("spiral");
  ASSERT_FALSE(cutter.ok());
  EXPECT_EQ(cutter.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(cutter.status().message()),
              testing::AllOf(HasSubstr("'spiral'"), HasSubstr("smollm"),
                             HasSubstr("llama-bpe"), HasSubstr("qwen2")));
}

}  // namespace
}  // namespace millrace::models
