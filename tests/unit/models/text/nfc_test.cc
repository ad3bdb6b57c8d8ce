// Against Python's normalisation (tests/golden/text/nfc.json, made by
// tests/data/make_nfc.py): every rule by name and random heaps of marks.
#include "models/text/nfc.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

namespace millrace::models {
namespace {

TEST(Nfc, GivesWhatPythonGives) {
  std::ifstream in("tests/golden/text/nfc.json");
  ASSERT_TRUE(in) << "run from the root of the repository";
  const auto golden = nlohmann::json::parse(in);
  ASSERT_GE(golden.size(), 200u);
  for (const auto& row : golden) {
    const std::string text = row[0];
    const std::string wanted = row[1];
    EXPECT_EQ(ToNfc(text), wanted) << row;
    EXPECT_EQ(ToNfc(wanted), wanted) << row;
    EXPECT_TRUE(!IsPlainlyNfc(text) || text == wanted) << row;
  }
}

TEST(Nfc, ALongRunOfMarksIsNoTrap) {
  std::string text = "a";
  for (int i = 0; i < 100'000; ++i) text += i % 2 == 0 ? "\u0301" : "\u0323";
  EXPECT_TRUE(ToNfc(text).starts_with("\u1ea1\u0323"));
}

}  // namespace
}  // namespace millrace::models
