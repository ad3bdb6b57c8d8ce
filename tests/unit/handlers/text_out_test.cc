#include "handlers/text_out.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "config/base/utf8.h"

namespace millrace::handlers {
namespace {

TokenLogprobs Logprob(int32_t id) {
  TokenLogprobs logprobs;
  logprobs.chosen.id = id;
  return logprobs;
}

std::vector<int32_t> Ids(const OutputDelta& chunk) {
  std::vector<int32_t> ids;
  for (const auto& token : chunk.logprobs) ids.push_back(token.chosen.id);
  return ids;
}

using IdList = std::vector<int32_t>;

TEST(TextOut, PlainTextPassesTokenByToken) {
  TextOut out({});
  ASSERT_TRUE(out.Push("Hel", Logprob(1)));
  OutputDelta chunk = out.Take();
  EXPECT_EQ(chunk.text, "Hel");
  EXPECT_EQ(Ids(chunk), IdList{1});
  EXPECT_EQ(chunk.num_tokens, 1);
  ASSERT_TRUE(out.Push("lo", Logprob(2)));
  chunk = out.Take();
  EXPECT_EQ(chunk.text, "lo");
  EXPECT_EQ(Ids(chunk), IdList{2});
}

TEST(TextOut, CharacterWaitsForItsLastByteAndSoDoItsTokens) {
  TextOut out({});
  // U+1F600 in four tokens.
  ASSERT_TRUE(out.Push("a\xF0", Logprob(1)));
  OutputDelta chunk = out.Take();
  EXPECT_EQ(chunk.text, "a");
  EXPECT_EQ(chunk.num_tokens, 0) << "its last character is not out yet";
  ASSERT_TRUE(out.Push("\x9F", Logprob(2)));
  ASSERT_TRUE(out.Push("\x98", Logprob(3)));
  EXPECT_EQ(out.Take().num_tokens, 0);
  ASSERT_TRUE(out.Push("\x80!", Logprob(4)));
  chunk = out.Take();
  EXPECT_EQ(chunk.text, "\xF0\x9F\x98\x80!");
  EXPECT_EQ(Ids(chunk), (IdList{1, 2, 3, 4}));
  EXPECT_EQ(chunk.num_tokens, 4);
}

TEST(TextOut, IllFormedBytesBecomeReplacementCharacters) {
  TextOut out({});
  ASSERT_TRUE(out.Push("\xC3", {}));
  ASSERT_TRUE(out.Push("(\xFF", {}));
  EXPECT_EQ(out.Take().text, "\xEF\xBF\xBD(\xEF\xBF\xBD");
}

TEST(TextOut, IncompleteTailBecomesOneReplacementCharacterAtTheEnd) {
  TextOut out({});
  ASSERT_TRUE(out.Push("x\xE2", Logprob(1)));
  ASSERT_TRUE(out.Push("\x82", Logprob(2)));
  out.Finish();
  const OutputDelta chunk = out.Take();
  EXPECT_EQ(chunk.text, "x\xEF\xBF\xBD");
  EXPECT_EQ(Ids(chunk), (IdList{1, 2}));
}

TEST(TextOut, BeginningOfAStopStringIsHeldBackUntilItCannotBeOne) {
  TextOut out({.stop = {"\nUser:"}});
  ASSERT_TRUE(out.Push("Hi\nUs", Logprob(1)));
  OutputDelta chunk = out.Take();
  EXPECT_EQ(chunk.text, "Hi");
  EXPECT_EQ(chunk.num_tokens, 0);
  ASSERT_TRUE(out.Push("age", Logprob(2)));
  chunk = out.Take();
  EXPECT_EQ(chunk.text, "\nUsage");
  EXPECT_EQ(Ids(chunk), (IdList{1, 2}));
}

TEST(TextOut, StopStringAcrossTokensCutsTextAndDropsWhatHasNoTextLeft) {
  TextOut out({.stop = {"STOP"}});
  ASSERT_TRUE(out.Push("go ", Logprob(1)));
  ASSERT_TRUE(out.Push("on S", Logprob(2)));
  ASSERT_TRUE(out.Push("TO", Logprob(3)));
  EXPECT_EQ(out.Take().text, "go on ");
  EXPECT_FALSE(out.Push("P and more", Logprob(4)));
  EXPECT_EQ(out.stop_string(), "STOP");
  const OutputDelta chunk = out.Take();
  EXPECT_EQ(chunk.text, "");
  EXPECT_EQ(Ids(chunk), IdList{2}) << "token 2 is partly visible";
  EXPECT_EQ(chunk.num_tokens, 3);
  EXPECT_FALSE(out.Push("late", Logprob(5)));
  EXPECT_EQ(out.Take().num_tokens, 0);
}

TEST(TextOut, StopStringStaysWhenAskedForAndNothingAfterIt) {
  TextOut out({.stop = {"STOP"}, .include_stop = true});
  ASSERT_TRUE(out.Push("a ST", Logprob(1)));
  EXPECT_FALSE(out.Push("OP b", Logprob(2)));
  const OutputDelta chunk = out.Take();
  EXPECT_EQ(chunk.text, "a STOP");
  EXPECT_EQ(Ids(chunk), (IdList{1, 2}));
}

TEST(TextOut, FirstToBeCompleteWinsAndOfThoseTheLongest) {
  TextOut out({.stop = {"bcX", "d", "cd", "abcde"}});
  EXPECT_FALSE(out.Push("abcde", {}));
  EXPECT_EQ(out.stop_string(), "cd");
  EXPECT_EQ(out.Take().text, "ab");
}

TEST(TextOut, StopStringThatOverlapsItselfIsFound) {
  TextOut out({.stop = {"aab"}});
  ASSERT_TRUE(out.Push("a", {}));
  ASSERT_TRUE(out.Push("a", {}));
  ASSERT_TRUE(out.Push("a", {}));
  EXPECT_EQ(out.Take().text, "a");
  EXPECT_FALSE(out.Push("b", {}));
  EXPECT_EQ(out.Take().text, "");
}

TEST(TextOut, TextBeforeMinTokensTakesNoPartInStopStrings) {
  TextOut out({.stop = {"ab"}});
  ASSERT_TRUE(out.Push("ab", {}, /*may_stop=*/false));
  ASSERT_TRUE(out.Push("a", {}, /*may_stop=*/false));
  EXPECT_EQ(out.Take().text, "aba");
  ASSERT_TRUE(out.Push("b", {}));
  EXPECT_FALSE(out.Push("ab", {}));
  EXPECT_EQ(out.Take().text, "b");
}

TEST(TextOut, HeldTextComesOutAtTheEnd) {
  TextOut out({.stop = {"END"}});
  ASSERT_TRUE(out.Push("the EN", Logprob(1)));
  EXPECT_EQ(out.Take().text, "the ");
  out.Finish();
  const OutputDelta chunk = out.Take();
  EXPECT_EQ(chunk.text, "EN");
  EXPECT_EQ(Ids(chunk), IdList{1});
  EXPECT_FALSE(out.stop_string());
}

TEST(TextOut, ReplacementAtTheEndMayCompleteAStopString) {
  TextOut out({.stop = {"a\xEF\xBF\xBD"}});
  ASSERT_TRUE(out.Push("xa\xE2\x82", {}));
  out.Finish();
  EXPECT_EQ(out.Take().text, "x");
  EXPECT_TRUE(out.stop_string());
}

TEST(TextOut, TokensWithoutTextAreReleasedInTheirPlace) {
  TextOut out({.stop = {"zz"}});
  ASSERT_TRUE(out.Push("", Logprob(1)));
  EXPECT_EQ(Ids(out.Take()), IdList{1});
  ASSERT_TRUE(out.Push("z", Logprob(2)));
  ASSERT_TRUE(out.Push("", Logprob(3)));
  EXPECT_EQ(out.Take().num_tokens, 0) << "behind held text";
  ASSERT_TRUE(out.Push("a", Logprob(4)));
  EXPECT_EQ(Ids(out.Take()), (IdList{2, 3, 4}));
}

// --- Oracle: the whole text at once, by brute force --------------------------

struct Whole {
  std::string text;
  std::string stop;  // empty: none
};

Whole CutWhole(const std::string& bytes, const std::vector<std::string>& stops,
               bool include_stop) {
  const std::string clean = ReplaceInvalidUtf8(bytes);
  for (size_t end = 1; end <= clean.size(); ++end) {
    std::string longest;
    for (const std::string& stop : stops) {
      if (stop.size() <= end && stop.size() > longest.size() &&
          clean.compare(end - stop.size(), stop.size(), stop) == 0) {
        longest = stop;
      }
    }
    if (!longest.empty()) {
      return {clean.substr(0, include_stop ? end : end - longest.size()),
              longest};
    }
  }
  return {clean, ""};
}

// What may be shown of the tokens so far: all but an incomplete character and
// the longest suffix that begins a stop string.
size_t Showable(const std::string& bytes,
                const std::vector<std::string>& stops) {
  const std::string clean = ReplaceInvalidUtf8(
      bytes.substr(0, bytes.size() - IncompleteUtf8Suffix(bytes)));
  size_t held = 0;
  for (const std::string& stop : stops) {
    for (size_t n = 1; n < stop.size() && n <= clean.size(); ++n) {
      if (clean.ends_with(stop.substr(0, n))) held = std::max(held, n);
    }
  }
  return clean.size() - held;
}

TEST(TextOut, ChunksAlwaysAddUpToTheWholeText) {
  // Few letters, so that stop strings and characters cut in two are common.
  const std::vector<std::string> atoms = {
      "a",        "b",        "ab",   "\xC3", "\xA4", "\xC3\xA4", "\xF0\x9F",
      "\x98\x80", "\xE2\x82", "\xAC", "\xFF", "",     "\xED\xA0", "ba\xC3"};
  const std::vector<std::string> stop_atoms = {"a", "b", "\xC3\xA4",
                                               "\xEF\xBF\xBD", "\xE2\x82\xAC"};
  for (uint32_t seed = 0; seed < 20000; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](size_t n) { return random() % n; };
    std::vector<std::string> stops(below(4));
    for (auto& stop : stops) {
      for (size_t n = 1 + below(4); n > 0; --n) {
        stop += stop_atoms[below(stop_atoms.size())];
      }
    }
    const bool include = below(2) == 0;
    std::vector<std::string> tokens(below(12));
    std::string bytes;
    for (auto& token : tokens) {
      token = atoms[below(atoms.size())];
      bytes += token;
    }
    const Whole whole = CutWhole(bytes, stops, include);

    TextOut out({.stop = stops, .include_stop = include});
    std::string shown, so_far;
    IdList ids;
    int32_t count = 0;
    const auto take = [&] {
      const OutputDelta chunk = out.Take();
      EXPECT_TRUE(IsValidUtf8(chunk.text)) << "seed " << seed;
      shown += chunk.text;
      count += chunk.num_tokens;
      for (const int32_t id : Ids(chunk)) ids.push_back(id);
    };
    size_t pushed = 0;
    bool goes_on = true;
    while (goes_on && pushed < tokens.size()) {
      so_far += tokens[pushed];
      goes_on = out.Push(tokens[pushed], Logprob(static_cast<int>(pushed)));
      ++pushed;
      if (below(2) == 0) {
        take();
        if (goes_on) {
          ASSERT_EQ(shown.size(), Showable(so_far, stops)) << "seed " << seed;
        }
      }
    }
    if (goes_on) out.Finish();
    take();
    ASSERT_EQ(shown, whole.text) << "seed " << seed;
    ASSERT_EQ(out.stop_string().value_or(""), whole.stop) << "seed " << seed;
    ASSERT_EQ(count, static_cast<int32_t>(pushed)) << "seed " << seed;
    // Log-probabilities: the first so many tokens, in order; all without stop.
    for (size_t i = 0; i < ids.size(); ++i) {
      ASSERT_EQ(ids[i], static_cast<int32_t>(i)) << "seed " << seed;
    }
    if (whole.stop.empty()) {
      ASSERT_EQ(ids.size(), tokens.size()) << "seed " << seed;
    } else {
      // Tokens before the last one shown spell no more than is shown, and the
      // shown ones spell at least all of it.
      std::string spelled;
      for (size_t i = 0; i < ids.size(); ++i) spelled += tokens[i];
      ASSERT_GE(ReplaceInvalidUtf8(spelled).size(), shown.size())
          << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace millrace::handlers
