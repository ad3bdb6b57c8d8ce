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
