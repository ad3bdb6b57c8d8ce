// Oracles: RFC 3629 and the examples of Unicode 15 table 3-8.
#include "config/base/utf8.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

// Every code point that is no surrogate, encoded by the RFC's table.
std::string Encode(uint32_t c) {
  std::string out;
  const auto put = [&](uint32_t byte) { out += static_cast<char>(byte); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6), put(0x80 | (c & 63));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12), put(0x80 | (c >> 6 & 63)), put(0x80 | (c & 63));
  } else {
    put(0xF0 | c >> 18), put(0x80 | (c >> 12 & 63));
    put(0x80 | (c >> 6 & 63)), put(0x80 | (c & 63));
  }
  return out;
}

TEST(Utf8, EveryScalarValueIsValidAndSurrogatesAreNot) {
  for (uint32_t c = 0; c <= 0x110000; ++c) {
    const bool scalar = c <= 0x10FFFF && (c < 0xD800 || c > 0xDFFF);
    ASSERT_EQ(IsValidUtf8(Encode(c)), scalar) << std::hex << c;
  }
}

TEST(Utf8, OverlongAndStrayBytesAreInvalid) {
  for (const char* bad : {"\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\x80",
                          "\xF0\x8F\xBF\xBF", "\xF5\x80\x80\x80", "\xFF"}) {
    EXPECT_FALSE(IsValidUtf8(bad));
  }
}

TEST(Utf8, PrefixEndsBeforeTheFirstBrokenCharacter) {
  EXPECT_EQ(ValidUtf8Prefix("ab\xC3\xA9\xFFx"), 4u);
  EXPECT_EQ(ValidUtf8Prefix("ab\xE2\x82"), 2u);
  EXPECT_EQ(ValidUtf8Prefix(""), 0u);
}

TEST(Utf8, IncompleteSuffixCountsBytesThatMayStillBecomeACharacter) {
  EXPECT_EQ(IncompleteUtf8Suffix("a"), 0u);
  EXPECT_EQ(IncompleteUtf8Suffix(""), 0u);
  EXPECT_EQ(IncompleteUtf8Suffix("a\xC3"), 1u);
  EXPECT_EQ(IncompleteUtf8Suffix("a\xE2\x82"), 2u);
  EXPECT_EQ(IncompleteUtf8Suffix("a\xF0\x9F\x98"), 3u);
  EXPECT_EQ(IncompleteUtf8Suffix("\xF0\x9F\x98\x80"), 0u);
  EXPECT_EQ(IncompleteUtf8Suffix("\x80\x80\x80"), 0u);  // never becomes one
  EXPECT_EQ(IncompleteUtf8Suffix("\xE0\x80"), 0u);      // overlong already
  EXPECT_EQ(IncompleteUtf8Suffix("\xFF"), 0u);
}

TEST(Utf8, AShortenedTextSplitsNoCharacter) {
  EXPECT_EQ(Shortened("abc", 3), "abc");
  EXPECT_EQ(Shortened("abcd", 3), "abc");
  EXPECT_EQ(Shortened("abcd", 0), "");
  const std::string euro = "ab\xE2\x82\xAC!";
  EXPECT_EQ(Shortened(euro, 6), euro);
  EXPECT_EQ(Shortened(euro, 5), "ab\xE2\x82\xAC");
  EXPECT_EQ(Shortened(euro, 4), "ab");
  EXPECT_EQ(Shortened(euro, 3), "ab");
  EXPECT_EQ(Shortened(euro, 2), "ab");
  const std::string smile = "\xF0\x9F\x98\x80";
  for (size_t most = 0; most < 4; ++most) {
    EXPECT_EQ(Shortened(smile, most), "") << most;
  }
  // What is no UTF-8 stays, cut where it is asked for.
  EXPECT_EQ(Shortened("\xFF\xFF\xFF", 2), "\xFF\xFF");
  EXPECT_EQ(Shortened("a\xE2(\xA1", 2), "a\xE2");
  // Every cut of a text is whole characters.
  std::string text;
  for (int i = 0; i < 40; ++i) {
    text += i % 3 == 0 ? "x" : i % 2 ? "\xC3\xA9" : euro;
  }
  for (size_t most = 0; most <= text.size(); ++most) {
    const std::string cut = Shortened(text, most);
    EXPECT_TRUE(IsValidUtf8(cut)) << most;
    EXPECT_TRUE(text.starts_with(cut));
    EXPECT_GT(cut.size() + 3, most);
  }
}

TEST(Utf8, EachMaximalSubpartBecomesOneReplacement) {
  // Unicode 15, table 3-8: 61 F1 80 80 E1 80 C2 62 80 63 80 BF 64.
  EXPECT_EQ(ReplaceInvalidUtf8("a\xF1\x80\x80\xE1\x80\xC2"
                               "b\x80"
                               "c\x80\xBF"
                               "d"),
            "a\uFFFD\uFFFD\uFFFDb\uFFFDc\uFFFD\uFFFDd");
  EXPECT_EQ(ReplaceInvalidUtf8("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(ReplaceInvalidUtf8("caf\xC3\xA9"), "caf\xC3\xA9");
}

}  // namespace
}  // namespace millrace
