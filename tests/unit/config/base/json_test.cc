#include "config/base/json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace millrace {
namespace {

std::string Error(std::string_view text, const JsonLimits& limits = {}) {
  const auto parsed = ParseJson(text, limits);
  EXPECT_FALSE(parsed.ok()) << text;
  EXPECT_EQ(parsed.status().code(), StatusCode::kInvalidArgument);
  return std::string(parsed.status().message());
}

TEST(Json, RoundTripKeepsOrderAndKinds) {
  const std::string text =
      R"({"b":1,"a":[true,null,-2,2.5,"x\u00e9"],"u":18446744073709551615})";
  const auto parsed = ParseJson(text);
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_EQ(DumpJson(*parsed),
            "{\"b\":1,\"a\":[true,null,-2,2.5,\"x\u00e9\"],"
            "\"u\":18446744073709551615}");
}

TEST(Json, ScalarsStandAlone) {
  EXPECT_EQ(ParseJson(" 7 ")->get<int>(), 7);
  EXPECT_TRUE(ParseJson("null")->is_null());
}

TEST(Json, ErrorsNameTheByte) {
  EXPECT_NE(Error("{\"a\":}").find("byte 6"), std::string::npos);
  Error("");
  Error("{\"a\":1} x");
  Error("[1,]");
  Error("nul");
  Error("1e999");
}

TEST(Json, InvalidUtf8IsRefused) {
  Error("\"\xFF\"");
  Error("\"\xED\xA0\x80\"");
  Error("\"\\ud800\"");
  EXPECT_TRUE(ParseJson("\"\xF0\x9F\x98\x80\"").ok());
}

TEST(Json, LongOffendingTextIsNotEchoedWhole) {
  EXPECT_LT(Error("[\"" + std::string(100000, 'a')).size(), 400u);
}

TEST(Json, DepthLimitCountsOpenContainers) {
  EXPECT_TRUE(ParseJson("[[1]]", {.max_depth = 2}).ok());
  EXPECT_NE(Error("[[[1]]]", {.max_depth = 2}).find("deeper than 2"),
            std::string::npos);
}

TEST(Json, NestingBombIsRefusedWithoutRecursion) {
  Error(std::string(10'000'000, '['));
}

TEST(Json, ValueLimitCountsContainersAndScalars) {
  EXPECT_TRUE(ParseJson("[1,2]", {.max_values = 3}).ok());
  EXPECT_NE(Error("[1,2]", {.max_values = 2}).find("more than 2 values"),
            std::string::npos);
}

TEST(Json, SameKeyTwiceKeepsTheLastValueInSmallAndLargeObjects) {
  for (const int keys : {2, 16, 17, 40}) {
    std::string text = "{";
    for (int i = 0; i < keys; ++i) {
      text += "\"k" + std::to_string(i) + "\":[" + std::to_string(i) + "],";
    }
    text += "\"k1\":{\"x\":\"new\"}}";
    const auto parsed = ParseJson(text);
    ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
    EXPECT_EQ(parsed->size(), static_cast<size_t>(keys));
    EXPECT_EQ((*parsed)["k1"]["x"], "new");
    EXPECT_EQ((*parsed)["k0"][0], 0);
  }
}

TEST(Json, SameKeyTwiceIsRefusedWhereKeysMustBeUnique) {
  const JsonLimits unique{.unique_keys = true};
  EXPECT_TRUE(ParseJson(R"({"a":1,"b":{"a":2}})", unique).ok());
  EXPECT_EQ(ParseJson(R"({"a":1,"a":2})", unique).status().message(),
            "the key 'a' appears twice in an object");
  std::string large = "{";
  for (int i = 0; i < 40; ++i) large += "\"k" + std::to_string(i) + "\":0,";
  EXPECT_FALSE(ParseJson(large + "\"k39\":1}", unique).ok());
  EXPECT_TRUE(ParseJson(large + "\"k40\":1}", unique).ok());
}

TEST(Json, ManyKeysCostLinearTime) {
  // With a search from the front this would be 4e10 comparisons.
  std::string text = "{";
  for (int i = 0; i < 200'000; ++i) {
    text += "\"" + std::to_string(i) + "\":0,";
  }
  text += "\"last\":1}";
  EXPECT_EQ(ParseJson(text)->size(), 200'001u);
}

TEST(Json, DumpReplacesBytesThatAreNoUtf8) {
  EXPECT_EQ(DumpJson(nlohmann::ordered_json("a\xFF")), "\"a\uFFFD\"");
}

// Writes what it is told.
class Scribe final : public JsonArraySink {
 public:
  Status OnInteger(int64_t value) override { return Note(value); }
  Status OnUnsigned(uint64_t value) override { return Note(value); }
  Status OnReal(double value) override { return Note(value); }
  Status OnBool(bool value) override {
    text += value ? "t " : "f ";
    return OkStatus();
  }
  Status OnOther(std::string_view what) override {
    return InvalidArgument("no " + std::string(what));
  }
  Status OnOpen() override {
    text += "[ ";
    return OkStatus();
  }
  Status OnClose() override {
    text += "] ";
    return OkStatus();
  }
  std::string text;

 private:
  Status Note(auto value) {
    text += nlohmann::ordered_json(value).dump() + " ";
    return OkStatus();
  }
};

TEST(Json, ChosenArraysGoToASink) {
  Scribe scribe;
  const JsonArrayPick pick =
      [&](const auto& root, const auto& object,
          std::string_view key) -> StatusOr<JsonArraySink*> {
    EXPECT_TRUE(root.is_object());
    if (key != "data" || !object.contains("name")) return nullptr;
    return &scribe;
  };
  const auto parsed = ParseJson(
      R"({"in":[{"data":[7],"name":"x"},)"
      R"({"name":"y","data":[[1,-2],[2.5,[true]]],"z":[3]}],"data":[8]})",
      {.max_values = 13}, pick);
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_EQ(scribe.text, "[ [ 1 -2 ] [ 2.5 [ t ] ] ] ");
  EXPECT_EQ(DumpJson(*parsed),
            R"({"in":[{"data":[7],"name":"x"},)"
            R"({"name":"y","data":[],"z":[3]}],"data":[8]})");
}

TEST(Json, SinkStopsTheParser) {
  Scribe scribe;
  const JsonArrayPick pick = [&](const auto&, const auto&,
                                 std::string_view) -> StatusOr<JsonArraySink*> {
    return &scribe;
  };
  for (const char* text :
       {R"({"a":["x"]})", R"({"a":[null]})", R"({"a":[{"b":1}]})",
        R"({"a":[1,)", R"({"a":[}]})"}) {
    EXPECT_FALSE(ParseJson(text, {}, pick).ok()) << text;
  }
  EXPECT_EQ(ParseJson(R"({"a":["x"]})", {}, pick).status().message(),
            "no a string");
  const std::string deep = R"({"a":)" + std::string(100, '[');
  EXPECT_NE(ParseJson(deep, {}, pick).status().message().find("nests deeper"),
            std::string::npos);
}

TEST(Json, FeedArrayMakesTheSameCalls) {
  Scribe scribe;
  ASSERT_TRUE(FeedArray(*ParseJson("[[1,-2],[2.5,[true]]]"), scribe).ok());
  EXPECT_EQ(scribe.text, "[ [ 1 -2 ] [ 2.5 [ t ] ] ] ");
  EXPECT_FALSE(FeedArray(*ParseJson("[{}]"), scribe).ok());
}

}  // namespace
}  // namespace millrace
