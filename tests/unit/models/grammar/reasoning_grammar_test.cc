// Each letter is a token, and some texts are: 26 … 29. The tag <> closes, [
// opens.
#include "models/grammar/reasoning_grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

namespace millrace::models {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int32_t kVocab = 33;
constexpr int32_t kOpen = 26, kLess = 27, kMore = 28, kMoreLine = 29,
                  kMoreText = 30, kTag = 31, kEnd = 32;
constexpr std::array<std::string_view, 7> kTexts = {"[",  "<",  ">",    ">\n",
                                                    ">a", "<>", "(end)"};

std::string_view Piece(int32_t id) {
  static const std::string letters = "abcdefghijklmnopqrstuvwxyz";
  if (id < 26) return std::string_view(letters).substr(id, 1);
  return kTexts[static_cast<size_t>(id) - 26];
}

// Allows the letter a alone, and knows which tokens it was told of.
class OnlyA final : public TokenGrammar {
 public:
  class Matcher final : public GrammarMatcher {
   public:
    explicit Matcher(std::vector<int32_t>& seen) : seen_(seen) {}
    void Fill(std::span<uint32_t> mask) override {
      std::ranges::fill(mask, 0u);
      mask[0] = 1;
    }
    bool Accept(int32_t id) override {
      if (id != 0) return false;
      seen_.push_back(id);
      return true;
    }
    void Rollback(int32_t n) override {
      seen_.resize(seen_.size() - static_cast<size_t>(n));
    }
    std::vector<int32_t> ForcedTokens(int32_t) override { return {0}; }

   private:
    std::vector<int32_t>& seen_;
  };

  explicit OnlyA(std::vector<int32_t>& seen) : seen_(seen) {}
  std::unique_ptr<GrammarMatcher> NewMatcher() const override {
    return std::make_unique<Matcher>(seen_);
  }
  int64_t memory_bytes() const override { return 7; }

 private:
  std::vector<int32_t>& seen_;
};

class ReasoningGrammar : public ::testing::Test {
 protected:
  std::unique_ptr<GrammarMatcher> Make(std::optional<int64_t> budget,
                                       bool begun, bool grammar,
                                       bool delays = true) {
    ReasoningRules rules;
    rules.tag_ends = tag_ends_;
    rules.open = "[";
    rules.close = "<>";
    rules.begun = begun;
    rules.budget = budget;
    rules.close_ids = {kLess, kMore};
    rules.stop_ids = {kEnd};
    rules.delays_grammar = grammar && delays;
    rules.piece = [this](int32_t id) {
      ++pieces_read_;
      return Piece(id);
    };
    rules.num_ids = kVocab;
    return MakeReasoningGrammar(
               rules, grammar ? std::make_shared<OnlyA>(seen_) : nullptr)
        ->NewMatcher();
  }
  static std::vector<int32_t> Allowed(GrammarMatcher& matcher) {
    std::vector<uint32_t> mask((kVocab + 31) / 32, 0u);
    matcher.Fill(mask);
    std::vector<int32_t> ids;
    for (int32_t id = 0; id < kVocab; ++id) {
      if ((mask[id / 32] >> (id % 32) & 1u) != 0) ids.push_back(id);
    }
    return ids;
  }
  std::vector<int32_t> seen_;
  std::shared_ptr<TagEnds> tag_ends_;
  int pieces_read_ = 0;
};

TEST_F(ReasoningGrammar, ABudgetThatIsUsedUpForcesTheTag) {
  const auto held = Make(2, /*begun=*/true, /*grammar=*/false);
  held->Accept(3);
  EXPECT_THAT(Allowed(*held), SizeIs(kVocab));
  EXPECT_THAT(held->ForcedTokens(4), IsEmpty());
  held->Accept(4);
  EXPECT_THAT(Allowed(*held), ElementsAre(kLess));
  EXPECT_THAT(held->ForcedTokens(4), ElementsAre(kLess, kMore));
  held->Accept(kLess);
  EXPECT_THAT(Allowed(*held), ElementsAre(kMore));
  EXPECT_THAT(held->ForcedTokens(4), ElementsAre(kMore));
  held->Accept(kMore);
  EXPECT_THAT(Allowed(*held), SizeIs(kVocab));
  held->Rollback(2);
  EXPECT_THAT(Allowed(*held), ElementsAre(kLess));
  held->Rollback(2);
  EXPECT_THAT(Allowed(*held), SizeIs(kVocab));
}

TEST_F(ReasoningGrammar, ABudgetOfZeroEndsReasoningAtOnce) {
  EXPECT_THAT(Allowed(*Make(0, true, false)), ElementsAre(kLess));
}

TEST_F(ReasoningGrammar, ReasoningThatEndsByItselfIsFreeBehindItsTag) {
  for (const std::vector<int32_t>& end :
       {std::vector<int32_t>{kTag}, {kLess, kMore}, {kLess, kMoreLine}}) {
    const auto held = Make(4, true, false);
    for (const int32_t id : end) held->Accept(id);
    for (int32_t id = 0; id < 9; ++id) held->Accept(id);
    EXPECT_THAT(Allowed(*held), SizeIs(kVocab));
  }
}

TEST_F(ReasoningGrammar, ReasoningIsWhatBeginsTheOutput) {
  const auto begins = Make(1, /*begun=*/false, false);
  begins->Accept(kOpen);
  EXPECT_THAT(Allowed(*begins), SizeIs(kVocab));
  begins->Accept(2);
  EXPECT_THAT(Allowed(*begins), ElementsAre(kLess));
  const auto other = Make(1, false, false);
  for (const int32_t id : {2, kOpen, 2, 2, 2}) other->Accept(id);
  EXPECT_THAT(Allowed(*other), SizeIs(kVocab));
}

TEST_F(ReasoningGrammar, AGrammarBeginsBehindTheTag) {
  const auto held = Make({}, true, /*grammar=*/true);
  // The completion may not end here, and no token may hide text of the grammar.
  std::vector<int32_t> free = Allowed(*held);
  EXPECT_THAT(free, SizeIs(kVocab - 1));
  EXPECT_EQ(std::ranges::count(free, kEnd), 0);
  held->Accept(5);
  held->Accept(kLess);
  free = Allowed(*held);
  EXPECT_THAT(free, SizeIs(kVocab - 2));
  EXPECT_EQ(std::ranges::count(free, kMoreText), 0);
  EXPECT_THAT(held->ForcedTokens(3), IsEmpty());
  held->Accept(kMoreLine);
  EXPECT_THAT(seen_, IsEmpty());
  EXPECT_THAT(Allowed(*held), ElementsAre(0));
  EXPECT_THAT(held->ForcedTokens(3), ElementsAre(0));
  held->Accept(0);
  held->Accept(0);
  EXPECT_THAT(seen_, ElementsAre(0, 0));
  held->Rollback(1);
  EXPECT_THAT(seen_, ElementsAre(0));
  held->Rollback(2);
  EXPECT_THAT(seen_, IsEmpty());
  EXPECT_EQ(std::ranges::count(Allowed(*held), kMoreText), 0);
}

TEST_F(ReasoningGrammar, AVocabularyIsReadOnceForAllRequests) {
  const std::vector<int32_t> alone = Allowed(*Make({}, true, true));
  tag_ends_ = std::make_shared<TagEnds>();
  pieces_read_ = 0;
  Make({}, true, true);
  EXPECT_EQ(pieces_read_, kVocab);
  const auto held = Make({}, true, true);
  EXPECT_EQ(pieces_read_, kVocab);
  EXPECT_EQ(Allowed(*held), alone);
  held->Accept(kLess);
  EXPECT_EQ(std::ranges::count(Allowed(*held), kMoreText), 0);
  // Another tag may end with another byte.
  const auto open = tag_ends_->With('<', Piece, kVocab);
  EXPECT_THAT(*open, ElementsAre(kTag));
  EXPECT_EQ(tag_ends_->With('<', nullptr, kVocab), open);
  EXPECT_THAT(*tag_ends_->With('>', nullptr, kVocab), ElementsAre(kMoreText));
}

TEST_F(ReasoningGrammar, AGrammarOfAllTheTextHoldsReasoningToo) {
  const auto held = Make(1, true, true, /*delays=*/false);
  EXPECT_THAT(Allowed(*held), ElementsAre(0));
  EXPECT_FALSE(held->Accept(kLess));
  EXPECT_TRUE(held->Accept(0));
  EXPECT_THAT(Allowed(*held), ElementsAre(0)) << "it forbids the tag";
  EXPECT_THAT(seen_, ElementsAre(0));
  held->Rollback(1);
  EXPECT_THAT(seen_, IsEmpty());
}

}  // namespace
}  // namespace millrace::models
