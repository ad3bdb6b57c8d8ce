#include "config/values.h"

#include <gtest/gtest.h>

#include <random>

namespace millrace::config {
namespace {

StatusOr<int64_t> Parse(Unit unit, std::string_view text,
                        std::string_view bare_unit = {}) {
  int64_t value = -77;
  const Status status =
      ParseValue({.name = "x", .unit = unit, .min = 0, .max = int64_t{1} << 50},
                 text, bare_unit, &value);
  if (!status.ok()) {
    EXPECT_EQ(value, -77) << "a refused value must not change the setting";
    return status;
  }
  return value;
}

TEST(Values, SizesTakeUnits) {
  EXPECT_EQ(*Parse(Unit::kBytes, "4096"), 4096);
  EXPECT_EQ(*Parse(Unit::kBytes, "2GiB"), int64_t{2} << 30);
  EXPECT_EQ(*Parse(Unit::kBytes, " 1.5 gib "), int64_t{3} << 29);
  EXPECT_EQ(*Parse(Unit::kBytes, "64M"), 64 << 20);
  EXPECT_EQ(*Parse(Unit::kBytes, "3kB"), 3000);
  EXPECT_EQ(*Parse(Unit::kBytes, "4", "GB"), 4'000'000'000);
  EXPECT_EQ(*Parse(Unit::kBytes, "1125899906842623"), 1125899906842623);
}

TEST(Values, TimesTakeUnitsAndBareNumbersAreSeconds) {
  EXPECT_EQ(*Parse(Unit::kMilliseconds, "30"), 30'000);
  EXPECT_EQ(*Parse(Unit::kMilliseconds, "5ms"), 5);
  EXPECT_EQ(*Parse(Unit::kMilliseconds, "0.3s"), 300);
  EXPECT_EQ(*Parse(Unit::kMilliseconds, "2min"), 120'000);
  EXPECT_EQ(*Parse(Unit::kMilliseconds, "1h"), 3'600'000);
  EXPECT_EQ(*Parse(Unit::kMilliseconds, "2000us"), 2);
  EXPECT_EQ(*Parse(Unit::kMicroseconds, "500us"), 500);
  EXPECT_EQ(*Parse(Unit::kMicroseconds, "1.5ms"), 1'500);
  EXPECT_EQ(*Parse(Unit::kMicroseconds, "2"), 2'000'000);
  EXPECT_FALSE(Parse(Unit::kMicroseconds, "0.5us").ok());
}

// As human_readable_int of vLLM's command line.
TEST(Values, TokensTakeLettersWhoseCaseMatters) {
  EXPECT_EQ(*Parse(Unit::kTokens, "4096"), 4096);
  EXPECT_EQ(*Parse(Unit::kTokens, "0"), 0);
  EXPECT_EQ(*Parse(Unit::kTokens, "128k"), 128'000);
  EXPECT_EQ(*Parse(Unit::kTokens, "25.6k"), 25'600);
  EXPECT_EQ(*Parse(Unit::kTokens, " 32K "), 32'768);
  EXPECT_EQ(*Parse(Unit::kTokens, "1m"), 1'000'000);
  EXPECT_EQ(*Parse(Unit::kTokens, "1M"), 1 << 20);
  for (const char* bad : {"", "k", "K", "1.5K", "1.0001k", "1kk", "k1", "1 kB",
                          "1e3", "nan", "9999999999G"}) {
    EXPECT_FALSE(Parse(Unit::kTokens, bad).ok()) << bad;
  }
  EXPECT_EQ(Parse(Unit::kTokens, "32KiB").status().message(),
            "x is '32KiB' but must be a whole number of tokens, like 32768, "
            "32K (1024 each) or 128k (1000 each)");
  int64_t tokens = 32'768;
  EXPECT_EQ(PrintValue({.name = "x", .unit = Unit::kTokens}, &tokens), "32768");
}

TEST(Values, SharesArePartsOfOneOrPerCent) {
  EXPECT_EQ(*Parse(Unit::kShare, "0.05"), 50'000);
  EXPECT_EQ(*Parse(Unit::kShare, "5%"), 50'000);
  EXPECT_EQ(*Parse(Unit::kShare, "0.25 %"), 2'500);
  EXPECT_EQ(*Parse(Unit::kShare, "2"), 2'000'000);
  for (const char* bad : {"", "%", "5 parts", "1e-2", "nan"}) {
    EXPECT_FALSE(Parse(Unit::kShare, bad).ok()) << bad;
  }
  int64_t share = 50'500;
  const SettingInfo info{.name = "share", .unit = Unit::kShare};
  EXPECT_EQ(PrintValue(info, &share), "5.05%");
  share = 100'000;
  EXPECT_EQ(PrintValue(info, &share), "10%");
}

TEST(Values, NonsenseIsRefusedWithTheValueAndWhatIsWanted) {
  for (const char* bad : {"", "x", "5 parsecs", "ms", "--3", "1e5s", "nan",
                          "inf", "0x10", "500us", "5m s"}) {
    const Status status = Parse(Unit::kMilliseconds, bad).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << bad;
    EXPECT_NE(status.message().find(std::string("'") + bad + "'"),
              std::string::npos)
        << status.ToString();
  }
  for (const char* bad : {"", "1.5", "ten", "1 0", "99999999999999999999"}) {
    EXPECT_FALSE(Parse(Unit::kNone, bad).ok()) << bad;
  }
  EXPECT_FALSE(Parse(Unit::kBytes, "1e300GiB").ok());
  EXPECT_FALSE(Parse(Unit::kBytes, "999999999999999999999TiB").ok());
}

TEST(Values, BoundsAreNamedInTheSettingsUnit) {
  int64_t value = 0;
  const SettingInfo info = {.name = "idle_timeout",
                            .unit = Unit::kMilliseconds,
                            .min = 10,
                            .max = 60'000};
  EXPECT_EQ(ParseValue(info, "61s", {}, &value).message(),
            "idle_timeout is '61s' but must be at most 60s");
  EXPECT_EQ(ParseValue(info, "1ms", {}, &value).message(),
            "idle_timeout is '1ms' but must be at least 10ms");
  EXPECT_EQ(ParseValue(info, "1ms", {}, &value).field(), "idle_timeout");
}

TEST(Values, SwitchesChoicesAndLists) {
  bool flag = false;
  const SettingInfo info = {.name = "x", .choices = {"a", "bc"}};
  EXPECT_TRUE(ParseValue(info, "On", {}, &flag).ok());
  EXPECT_TRUE(flag);
  EXPECT_TRUE(ParseValue(info, "no", {}, &flag).ok());
  EXPECT_FALSE(flag);
  EXPECT_FALSE(ParseValue(info, "maybe", {}, &flag).ok());
  std::string text;
  EXPECT_TRUE(ParseValue(info, "bc", {}, &text).ok());
  EXPECT_EQ(text, "bc");
  EXPECT_EQ(ParseValue(info, "b", {}, &text).message(),
            "x is 'b' but must be one of a, bc");
  std::vector<std::string> list;
  EXPECT_TRUE(ParseValue(info, "p, q", {}, &list).ok());
  EXPECT_EQ(list, (std::vector<std::string>{"p", "q"}));
  EXPECT_FALSE(ParseValue(info, "p,,q", {}, &list).ok());
}

TEST(Values, WhatIsPrintedReadsBackTheSame) {
  std::mt19937_64 random(7);
  for (const Unit unit :
       {Unit::kNone, Unit::kBytes, Unit::kMilliseconds, Unit::kMicroseconds}) {
    const SettingInfo info = {
        .name = "x", .unit = unit, .max = int64_t{1} << 45};
    for (int i = 0; i < 1000; ++i) {
      // Round numbers as often as odd ones.
      int64_t value = static_cast<int64_t>(random() >> (19 + random() % 44));
      value -= value % (int64_t{1} << (random() % 20));
      int64_t again = -1;
      const std::string text = PrintValue(info, &value);
      ASSERT_TRUE(ParseValue(info, text, {}, &again).ok()) << text;
      ASSERT_EQ(again, value) << text;
    }
  }
}

TEST(Values, SecretsAreNeitherPrintedNorQuotedInErrors) {
  const SettingInfo info = {
      .name = "api_key", .choices = {"a"}, .secret = true};
  std::string key = "sk-123";
  EXPECT_EQ(PrintValue(info, &key), "\"***\"");
  EXPECT_EQ(ParseValue(info, "sk-456", {}, &key).message().find("456"),
            std::string_view::npos);
}

}  // namespace
}  // namespace millrace::config
