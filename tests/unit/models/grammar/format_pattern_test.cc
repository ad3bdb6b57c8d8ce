// Against the rules of the formats, by another engine of regular expressions.
#include "models/grammar/format_pattern.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <regex>

namespace millrace::models {
namespace {

bool Takes(const std::regex& pattern, const std::string& text) {
  return std::regex_match(text, pattern);
}
std::regex PatternOf(const char* format) {
  return std::regex(FormatPattern(format));
}

TEST(FormatPattern, DatesAreThoseOfTheCalendar) {
  using std::chrono::day, std::chrono::month, std::chrono::year;
  const std::regex pattern = PatternOf("date");
  // A cycle of leap years is 400 years; two come at each of its corners.
  for (const int y : {1, 4, 99, 100, 104, 399, 400, 1900, 1999, 2000, 2023,
                      2024, 2096, 2100, 2400, 9600, 9996, 9999}) {
    for (unsigned m = 0; m <= 13; ++m) {
      for (unsigned d = 0; d <= 32; ++d) {
        char text[32];
        std::snprintf(text, sizeof(text), "%04d-%02u-%02u", y, m, d);
        const std::chrono::year_month_day date{year(y), month(m), day(d)};
        ASSERT_EQ(Takes(pattern, text), date.ok()) << text;
      }
    }
  }
  EXPECT_FALSE(Takes(pattern, "0000-01-01"));
  EXPECT_FALSE(Takes(pattern, "2024-1-1"));
}

TEST(FormatPattern, TimesHaveNoLeapSecondAndAnOffset) {
  const std::regex pattern = PatternOf("time");
  for (const char* right : {"00:00:00Z", "23:59:59.123+23:59", "12:30:01-08:00",
                            "08:30:06.123456789Z"}) {
    EXPECT_TRUE(Takes(pattern, right)) << right;
  }
  for (const char* wrong : {"23:59:60Z", "24:00:00Z", "12:60:00Z", "12:00:00",
                            "12:00:00.Z", "12:00:00+24:00", "1:00:00Z"}) {
    EXPECT_FALSE(Takes(pattern, wrong)) << wrong;
  }
  const std::regex both = PatternOf("date-time");
  EXPECT_TRUE(Takes(both, "2024-02-29T08:30:06Z"));
  EXPECT_FALSE(Takes(both, "2023-02-29T08:30:06Z"));
  EXPECT_FALSE(Takes(both, "2024-02-29 08:30:06Z"));
}

TEST(FormatPattern, AddressesAreThoseOfRfc3986) {
  const std::regex four = PatternOf("ipv4");
  EXPECT_TRUE(Takes(four, "255.0.19.200"));
  for (const char* wrong : {"256.0.0.1", "01.2.3.4", "1.2.3", "1.2.3.4.5"}) {
    EXPECT_FALSE(Takes(four, wrong)) << wrong;
  }
  const std::regex six = PatternOf("ipv6");
  for (const char* right :
       {"::", "::1", "1::", "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7::",
        "::2:3:4:5:6:7:8", "1::8", "1:2::3:4:5:6:7", "::ffff:1.2.3.4",
        "1:2:3:4:5:6:1.2.3.4", "1:2:3:4:5::1.2.3.4", "12ab:FfFf::"}) {
    EXPECT_TRUE(Takes(six, right)) << right;
  }
  for (const char* wrong :
       {"", ":", ":::", "1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9", "1::2::3",
        "1:2:3:4:5:6:7::8:9", "12345::", "::g", "::1.2.3.04", "1.2.3.4",
        "1:2:3:4:5:6:7:1.2.3.4", "::1%eth0"}) {
    EXPECT_FALSE(Takes(six, wrong)) << wrong;
  }
}

TEST(FormatPattern, HostNamesKeepTheirLimits) {
  const std::regex pattern = PatternOf("hostname");
  for (const char* right :
       {"a", "localhost", "www.sub.example-1.co.uk", "3com.com"}) {
    EXPECT_TRUE(Takes(pattern, right)) << right;
  }
  EXPECT_TRUE(Takes(pattern, std::string(31, 'a')));
  std::string longest = "a";
  for (int i = 0; i < 30; ++i) longest += "-a";
  EXPECT_TRUE(Takes(pattern, longest + "." + longest));
  EXPECT_FALSE(Takes(pattern, std::string(64, 'a')));
  std::string labels = longest;
  for (int i = 0; i < 4; ++i) labels += "." + longest;
  EXPECT_GT(labels.size(), 253u);
  EXPECT_FALSE(Takes(pattern, labels));
  for (const char* wrong : {"", "-a", "a-", "a..b", ".a", "a.", "a_b", "xn--x",
                            "ab--cd", "a b", "\xc3\xa9"}) {
    EXPECT_FALSE(Takes(pattern, wrong)) << wrong;
  }
}

TEST(FormatPattern, PointersEscapeTheirSigns) {
  const std::regex pointer = PatternOf("json-pointer");
  for (const char* right : {"", "/", "/a/b", "//", "/a~0~1b", "/0"}) {
    EXPECT_TRUE(Takes(pointer, right)) << right;
  }
  for (const char* wrong : {"a", "/~", "/~2", "/a~"}) {
    EXPECT_FALSE(Takes(pointer, wrong)) << wrong;
  }
  const std::regex relative = PatternOf("relative-json-pointer");
  for (const char* right : {"0", "1/a", "0#", "120/a~1"}) {
    EXPECT_TRUE(Takes(relative, right)) << right;
  }
  for (const char* wrong : {"", "/a", "01", "1#/a", "-1"}) {
    EXPECT_FALSE(Takes(relative, wrong)) << wrong;
  }
}

TEST(FormatPattern, OthersAreLeftToTheLibrary) {
  EXPECT_EQ(FormatPattern("uuid"), "");
  EXPECT_EQ(FormatPattern(""), "");
}

}  // namespace
}  // namespace millrace::models
