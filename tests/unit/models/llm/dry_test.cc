#include "models/llm/dry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

namespace millrace::models {
namespace {

using Tokens = std::vector<int32_t>;
using Penalties = std::vector<std::pair<int32_t, float>>;

TEST(Dry, ThePenaltyGrowsWithTheRepetition) {
  const DryParams dry = {.multiplier = 3, .base = 2, .allowed_length = 2};
  EXPECT_EQ(DryPenalties(dry, Tokens{1, 2, 3, 9, 2}), Penalties());
  EXPECT_EQ(DryPenalties(dry, Tokens{1, 2, 9, 1, 2}), (Penalties{{9, 3.0f}}));
  EXPECT_EQ(DryPenalties(dry, Tokens{0, 1, 2, 9, 0, 1, 2}),
            (Penalties{{9, 6.0f}}));
  // The longest repetition before a token counts.
  EXPECT_EQ(DryPenalties(dry, Tokens{0, 1, 2, 9, 1, 2, 9, 0, 1, 2}),
            (Penalties{{9, 6.0f}}));
}

TEST(Dry, OnlyTheLastTokensAreLookedAt) {
  DryParams dry = {.multiplier = 3, .base = 2, .last_n = 5};
  const Tokens tokens = {1, 2, 9, 1, 2};
  EXPECT_EQ(DryPenalties(dry, tokens).size(), 1u);
  dry.last_n = 4;
  EXPECT_TRUE(DryPenalties(dry, tokens).empty());
  dry.last_n = 0;
  EXPECT_TRUE(DryPenalties(dry, tokens).empty());
}

TEST(Dry, ABreakerEndsARepetition) {
  auto breakers = std::make_shared<DryBreakers>();
  breakers->tails[7] = {{}};
  breakers->tails[5] = {{6}};  // only 5 6 together
  const DryParams dry = {.multiplier = 1, .base = 2, .breakers = breakers};
  EXPECT_TRUE(DryPenalties(dry, Tokens{1, 7, 2, 9, 1, 7, 2}).empty());
  EXPECT_TRUE(DryPenalties(dry, Tokens{5, 6, 2, 9, 5, 6, 2}).empty());
  EXPECT_EQ(DryPenalties(dry, Tokens{5, 4, 2, 9, 5, 4, 2}),
            (Penalties{{9, 2.0f}}));
}

TEST(Dry, LongRepetitionsStayFinite) {
  const DryParams dry = {.multiplier = 1, .base = 2};
  const auto penalties = DryPenalties(dry, Tokens(2000, 3));
  ASSERT_EQ(penalties.size(), 1u);
  EXPECT_TRUE(std::isfinite(penalties[0].second));
}

// By the definition, for every place of the text on its own.
std::map<int32_t, double> Plain(const DryParams& dry, const Tokens& all) {
  const size_t n = dry.last_n < 0
                       ? all.size()
                       : std::min(all.size(), static_cast<size_t>(dry.last_n));
  const Tokens text(all.end() - static_cast<long>(n), all.end());
  // Tokens behind the last breaker.
  size_t behind = n;
  for (size_t end = n; end > 0 && behind == n; --end) {
    const auto head = dry.breakers->tails.find(text[end - 1]);
    if (head == dry.breakers->tails.end()) continue;
    long longest = -1;
    for (const Tokens& tail : head->second) {
      if (end + tail.size() > n) continue;
      if (std::equal(tail.begin(), tail.end(),
                     text.begin() + static_cast<long>(end))) {
        longest = std::max(longest, static_cast<long>(tail.size()));
      }
    }
    if (longest >= 0) behind = n - end - static_cast<size_t>(longest);
  }
  std::map<int32_t, double> penalties;
  const auto allowed = static_cast<size_t>(dry.allowed_length);
  if (n <= allowed || behind < allowed) return penalties;
  for (size_t next = 1; next < n; ++next) {
    size_t length = 0;
    while (length < next && text[next - 1 - length] == text[n - 1 - length]) {
      ++length;
    }
    length = std::min(length, behind);
    if (length < allowed) continue;
    double& known = penalties[text[next]];
    known = std::max(
        known, dry.multiplier *
                   std::pow(dry.base, static_cast<double>(length - allowed)));
  }
  return penalties;
}

TEST(Dry, AgreesWithItsDefinition) {
  std::mt19937 random(23);
  int some = 0;
  for (int i = 0; i < 3000; ++i) {
    Tokens tokens(random() % 40);
    for (int32_t& id : tokens) id = static_cast<int32_t>(random() % 4);
    auto breakers = std::make_shared<DryBreakers>();
    if (i % 3 == 0) breakers->tails[3] = {{}};
    if (i % 3 == 1) breakers->tails[2] = {{1}, {1, 0}};
    const DryParams dry = {.multiplier = 0.8f,
                           .base = 1.75f,
                           .allowed_length = static_cast<int32_t>(random() % 4),
                           .last_n = i % 2 == 0 ? -1 : 20,
                           .breakers = breakers};
    std::map<int32_t, double> got;
    for (const auto& [id, penalty] : DryPenalties(dry, tokens)) {
      got[id] = double{penalty};
    }
    const auto wanted = Plain(dry, tokens);
    ASSERT_EQ(got.size(), wanted.size()) << "round " << i;
    for (const auto& [id, penalty] : wanted) {
      // pow of floats: a few units in the last place.
      EXPECT_NEAR(got[id], penalty, penalty * 1e-5);
    }
    some += wanted.empty() ? 0 : 1;
  }
  EXPECT_GT(some, 1000);
}

}  // namespace
}  // namespace millrace::models
