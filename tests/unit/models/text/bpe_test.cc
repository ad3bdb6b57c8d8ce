// Merging against an oracle that reads like the definition.
#include "models/text/bpe.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <utility>
#include <vector>

namespace millrace::models {
namespace {

using Rules = std::map<std::pair<int32_t, int32_t>, MergeTable::Merge>;

MergeTable TableOf(const Rules& rules) {
  MergeTable out(rules.size());
  for (const auto& [pair, merge] : rules) {
    out.Add(pair.first, pair.second, merge);
  }
  return out;
}

// While any neighbours merge: the best-ranked, of these the leftmost.
std::vector<int32_t> Oracle(const Rules& rules, std::vector<int32_t> tokens) {
  for (;;) {
    uint32_t best = MergeTable::kNone;
    size_t at = 0;
    int32_t token = 0;
    for (size_t i = 0; i + 1 < tokens.size(); ++i) {
      const auto it = rules.find({tokens[i], tokens[i + 1]});
      if (it == rules.end() || it->second.rank >= best) continue;
      best = it->second.rank;
      token = it->second.token;
      at = i;
    }
    if (best == MergeTable::kNone) return tokens;
    tokens[at] = token;
    tokens.erase(tokens.begin() + static_cast<ptrdiff_t>(at) + 1);
  }
}

TEST(Bpe, BetterRankWinsOverTheLeftmostPair) {
  const MergeTable table = TableOf({{{1, 2}, {5, 10}}, {{2, 3}, {4, 11}}});
  std::vector<int32_t> tokens = {1, 2, 3};
  table.Apply(tokens);
  EXPECT_EQ(tokens, (std::vector<int32_t>{1, 11}));
}

TEST(Bpe, EqualPairsMergeFromTheLeft) {
  const MergeTable table = TableOf({{{1, 1}, {0, 2}}});
  std::vector<int32_t> tokens = {1, 1, 1};
  table.Apply(tokens);
  EXPECT_EQ(tokens, (std::vector<int32_t>{2, 1}));
}

TEST(Bpe, AgreesWithTheOracleForShortAndLongWords) {
  std::mt19937 random(11);
  for (int round = 0; round < 60; ++round) {
    Rules rules;
    int32_t next = 3;  // letters 0 to 2, and what becomes of them
    for (uint32_t rank = 0; rank < 25; ++rank) {
      const auto letter = [&] {
        return static_cast<int32_t>(random() % static_cast<uint32_t>(next));
      };
      const std::pair<int32_t, int32_t> pair{letter(), letter()};
      if (rules.emplace(pair, MergeTable::Merge{rank, next}).second) ++next;
    }
    const MergeTable table = TableOf(rules);
    for (const size_t length : {2, 7, 31, 32, 33, 34, 100, 400}) {
      std::vector<int32_t> tokens(length);
      for (int32_t& token : tokens) token = static_cast<int32_t>(random() % 3);
      const std::vector<int32_t> expected = Oracle(rules, tokens);
      table.Apply(tokens);
      ASSERT_EQ(tokens, expected) << "round " << round << ", " << length;
    }
  }
}

TEST(Bpe, ALongRunIsNotQuadratic) {
  // 2^20 letters become one token by 20 doublings. Quadratic work would be
  // 10^12 steps: the test's time limit is the assertion.
  Rules rules;
  for (int32_t i = 0; i < 20; ++i) {
    rules[{i, i}] = {static_cast<uint32_t>(i), i + 1};
  }
  std::vector<int32_t> tokens(1 << 20, 0);
  TableOf(rules).Apply(tokens);
  EXPECT_EQ(tokens, std::vector<int32_t>{20});
}

}  // namespace
}  // namespace millrace::models
