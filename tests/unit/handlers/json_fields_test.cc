#include "handlers/json_fields.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "config/base/json.h"

namespace millrace::handlers {
namespace {

nlohmann::ordered_json Parse(const char* text) {
  auto value = ParseJson(text);
  EXPECT_TRUE(value.ok()) << text;
  return value.ok() ? *value : nlohmann::ordered_json();
}

TEST(JsonFields, IntegersMayBeWrittenAsDoublesButNotAsBooleans) {
  const auto body = Parse(
      R"({"a": 7, "b": 7.0, "c": 7.5, "d": true, "e": "7", "f": null,
          "g": 18446744073709551615, "h": 1e300, "i": -0.0, "j": -3})");
  EXPECT_EQ(ReadInt(body, "a").value(), 7);
  EXPECT_EQ(ReadInt(body, "b").value(), 7);
  EXPECT_EQ(ReadInt(body, "c").status().message(),
            "c must be an integer, not a number with a fraction (7.5)");
  EXPECT_EQ(ReadInt(body, "d").status().message(),
            "d must be an integer, not a boolean (true)");
  EXPECT_EQ(ReadInt(body, "e").status().message(),
            "e must be an integer, not a string (\"7\")");
  EXPECT_EQ(ReadInt(body, "f").value(), std::nullopt);
  EXPECT_EQ(ReadInt(body, "missing").value(), std::nullopt);
  EXPECT_EQ(ReadInt(body, "g").status().message(),
            "g is 18446744073709551615 but must be an integer of 64 bits");
  EXPECT_FALSE(ReadInt(body, "h").ok());
  EXPECT_EQ(ReadInt(body, "i").value(), 0);
  EXPECT_EQ(ReadInt(body, "j", {1, INT64_MAX}).status().message(),
            "j is -3 but must be at least 1");
}

TEST(JsonFields, NumbersNameValueAndLimit) {
  const auto body = Parse(R"({"temperature": 3.5, "top_p": 0, "x": [1]})");
  const Status hot = ReadNumber(body, "temperature", {0, 2}).status();
  EXPECT_EQ(hot.message(), "temperature is 3.5 but must be between 0 and 2");
  EXPECT_EQ(hot.field(), "temperature");
  EXPECT_EQ(hot.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadNumber(body, "top_p", {0, 1, true}).status().message(),
            "top_p is 0 but must be greater than 0 and at most 1");
  EXPECT_EQ(ReadNumber(body, "x", {0, 1}).status().message(),
            "x must be a number, not an array ([1])");
}

TEST(JsonFields, BooleansStringsArraysAndObjectsAreChecked) {
  const auto body =
      Parse(R"({"b": true, "s": "text", "a": [], "o": {"k": 1}, "n": 1})");
  EXPECT_EQ(ReadBool(body, "b").value(), true);
  EXPECT_EQ(ReadBool(body, "n").status().message(),
            "n must be true or false, not an integer (1)");
  EXPECT_EQ(ReadString(body, "s").value(), "text");
  EXPECT_FALSE(ReadString(body, "b").ok());
  EXPECT_NE(ReadArray(body, "a").value(), nullptr);
  EXPECT_EQ(ReadArray(body, "missing").value(), nullptr);
  EXPECT_FALSE(ReadArray(body, "o").ok());
  EXPECT_NE(ReadObject(body, "o").value(), nullptr);
  EXPECT_FALSE(ReadObject(body, "a").ok());
}

TEST(JsonFields, LongValuesAreShortenedInSentences) {
  const std::string shown = Shown(std::string(1000, 'x'));
  EXPECT_LT(shown.size(), 80u);
  EXPECT_TRUE(shown.ends_with("..."));
  EXPECT_EQ(Shown(nlohmann::ordered_json(std::vector<int>(100, 1))),
            "an array of 100");
}

TEST(JsonFields, BodyThatIsNoObjectHasNoFields) {
  EXPECT_EQ(FindField(Parse("[1]"), "a"), nullptr);
  EXPECT_EQ(FindField(Parse("3"), "a"), nullptr);
}

}  // namespace
}  // namespace millrace::handlers
