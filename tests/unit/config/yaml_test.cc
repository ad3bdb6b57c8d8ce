#include "config/yaml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <string>

namespace millrace::config {
namespace {

using ::testing::HasSubstr;

std::string ErrorOf(const std::string& text) {
  try {
    LoadYaml(text);
  } catch (const YAML::Exception& error) {
    return error.msg;
  }
  return "";
}

TEST(Yaml, AnAliasStandsForItsAnchor) {
  EXPECT_EQ(LoadYaml("a: &x [1, 2]\nb: *x")["b"][1].as<int>(), 2);
  EXPECT_TRUE(LoadYaml("").IsNull());
}

TEST(Yaml, AnAliasThatHoldsItselfIsRefused) {
  EXPECT_THAT(ErrorOf("a: &x\n  - b: *x\n"),
              HasSubstr("an alias holds itself"));
  EXPECT_THAT(ErrorOf("&x [*x]"), HasSubstr("an alias holds itself"));
  EXPECT_THAT(ErrorOf("a: &x\n  ? *x\n  : 1\n"),
              HasSubstr("an alias holds itself"));
}

TEST(Yaml, DepthHasALimit) {
  const auto nested = [](int levels) {
    return std::string(static_cast<size_t>(levels), '[') +
           std::string(static_cast<size_t>(levels), ']');
  };
  EXPECT_EQ(ErrorOf(nested(kMaxYamlDepth + 1)), "");
  EXPECT_THAT(ErrorOf(nested(kMaxYamlDepth + 2)),
              HasSubstr("deeper than 100 levels"));
}

// Each line holds the one before nine times: the last one has 9^6.
TEST(Yaml, AliasesThatUnfoldIntoTooMuchAreRefused) {
  std::string text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 6; ++i) {
    const std::string below = "*a" + std::to_string(i - 1);
    const std::string name = "a" + std::to_string(i);
    text += name + ": &" + name + " [" + below;
    for (int j = 1; j < 9; ++j) text += ", " + below;
    text += "]\n";
  }
  EXPECT_THAT(ErrorOf(text), HasSubstr("more than 100000 values"));
}

}  // namespace
}  // namespace millrace::config
