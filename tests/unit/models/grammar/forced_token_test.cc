#include "models/grammar/forced_token.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace millrace::models {
namespace {

const std::vector<std::string> kTexts = {"a",  "ab", "abx", "aby", "",
                                         "ab", "b",  "acd", "abxz"};

std::vector<uint32_t> MaskOf(std::span<const int32_t> ids) {
  std::vector<uint32_t> mask(2);
  for (const int32_t id : ids) {
    mask[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
  }
  return mask;
}

std::optional<int32_t> Find(const std::vector<int32_t>& ids) {
  return ForcedTokenFinder(kTexts).Find(MaskOf(ids));
}

TEST(ForcedToken, SpellsTheMostOfTheTextThatIsSure) {
  EXPECT_EQ(Find({0, 1, 2, 3}), 1);        // "ab"
  EXPECT_EQ(Find({0, 2, 3}), 0);           // "ab", of which there is "a" alone
  EXPECT_EQ(Find({0, 1, 2, 8}), 8);        // "abxz"
  EXPECT_EQ(Find({0, 1, 3, 7}), 0);        // "a"
  EXPECT_EQ(Find({1, 5}), 1);              // the first of equals
  EXPECT_EQ(Find({2, 3}), std::nullopt);   // "ab", of which there is no token
  EXPECT_EQ(Find({0, 6}), std::nullopt);   // a choice
  EXPECT_EQ(Find({0, 4}), std::nullopt);   // one stands for no text
  EXPECT_EQ(Find({0, 40}), std::nullopt);  // beyond the texts
  EXPECT_EQ(Find({40}), std::nullopt);
  EXPECT_EQ(Find({}), std::nullopt);
  EXPECT_EQ(ForcedTokenFinder().Find(MaskOf(std::vector{3})), std::nullopt);
}

// Against the definition: a beginning of the text is sure if each allowed token
// begins with it or is a beginning of it itself.
TEST(ForcedToken, AnyMaskIsReadAsItIsDefined) {
  std::mt19937 random(5);
  int num_found = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::string> texts(20);
    for (std::string& text : texts) {
      for (auto n = 1 + random() % 4; n > 0; --n) {
        text += random() % 4 == 0 ? 'b' : 'a';
      }
    }
    std::vector<int32_t> ids;
    for (auto n = 1 + random() % 4; n > 0; --n) {
      ids.push_back(static_cast<int32_t>(random() % texts.size()));
    }
    size_t longest = 0;
    for (const int32_t id : ids) {
      const std::string& text = texts[static_cast<size_t>(id)];
      const bool sure = std::ranges::all_of(ids, [&](int32_t other) {
        const std::string& o = texts[static_cast<size_t>(other)];
        return o.starts_with(text) || text.starts_with(o);
      });
      if (sure) longest = std::max(longest, text.size());
    }
    const auto found = ForcedTokenFinder(texts).Find(MaskOf(ids));
    ASSERT_EQ(found ? texts[static_cast<size_t>(*found)].size() : 0, longest)
        << "round " << round;
    num_found += found.has_value();
  }
  EXPECT_GT(num_found, 300);
}

}  // namespace
}  // namespace millrace::models
