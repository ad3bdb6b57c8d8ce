// Integers within bounds, and what the grammar of a notation is made of. What
// the grammars take is tested with the library (handlers/call_grammar_test.cc).
#include "models/grammar/literal_grammar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <string>

#include "models/grammar/number_grammar.h"

namespace millrace::models {
namespace {

// The alternatives as a regular expression of C++.
std::regex RegexOf(std::string ebnf) {
  std::erase(ebnf, ' ');
  std::erase(ebnf, '"');
  return std::regex(ebnf);
}

TEST(IntegerEbnf, TakesWhatIsWithinTheBounds) {
  for (const int64_t least : {-120, -100, -10, -9, -1, 0, 1, 7, 10, 99, 105}) {
    for (const int64_t most : {-101, -7, -1, 0, 5, 9, 10, 57, 100, 119, 999}) {
      if (least > most) continue;
      const std::regex within = RegexOf(IntegerEbnf(least, most));
      for (int64_t i = -1100; i <= 1100; ++i) {
        EXPECT_EQ(std::regex_match(std::to_string(i), within),
                  least <= i && i <= most)
            << i << " in " << least << ".." << most << ": "
            << IntegerEbnf(least, most);
      }
      EXPECT_FALSE(std::regex_match("007", within));
      EXPECT_FALSE(std::regex_match("-0", within));
    }
  }
}

TEST(IntegerEbnf, ABoundMayBeAbsent) {
  const std::regex any = RegexOf(IntegerEbnf({}, {}));
  const std::regex least = RegexOf(IntegerEbnf(-5, {}));
  const std::regex most = RegexOf(IntegerEbnf({}, 42));
  for (int64_t i = -1100; i <= 1100; ++i) {
    EXPECT_TRUE(std::regex_match(std::to_string(i), any));
    EXPECT_EQ(std::regex_match(std::to_string(i), least), i >= -5);
    EXPECT_EQ(std::regex_match(std::to_string(i), most), i <= 42);
  }
  EXPECT_TRUE(std::regex_match("999999999999999999", least));
  EXPECT_FALSE(std::regex_match("1000000000000000000", least));
}

TEST(LiteralGrammar, NamesOfArgumentsAreWords) {
  const char* schema =
      R"({"type": "object", "properties": {"a b": {"type": "null"}}})";
  const auto refused = ArgumentsEbnf(schema, "pythonic");
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("'a b'"), std::string::npos);
  const auto quoted = ArgumentsEbnf(schema, "gemma");
  ASSERT_TRUE(quoted.ok());
  EXPECT_NE(quoted->find("<escape>a b<escape>"), std::string::npos);
  EXPECT_TRUE(IsNotation("gemma4"));
  EXPECT_FALSE(IsNotation("json"));
}

}  // namespace
}  // namespace millrace::models
