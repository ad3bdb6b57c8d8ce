#include "scheduler/speculation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "scheduler/ngram_drafter.h"

namespace millrace::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Ids = std::vector<int32_t>;

TEST(NgramDrafter, ProposesWhatFollowedTheLongestMatch) {
  const NgramDrafter drafter(2, 4);
  //            the longest match            a later, shorter one
  const Ids ids = {9, 1, 2, 3, 50, 51, 52, 8, 2, 3, 60, 61, 1, 2, 3};
  const Draft draft = drafter.Propose(ids, 2);
  EXPECT_THAT(draft.tokens, ElementsAre(50, 51));
  EXPECT_EQ(draft.kind, 2) << "three tokens matched";
  EXPECT_THAT(drafter.Propose(ids, 3).tokens, ElementsAre(50, 51, 52));
  EXPECT_THAT(drafter.Propose(ids, 0).tokens, IsEmpty());
}

TEST(NgramDrafter, AmongEqualsTheMostRecentWins) {
  const NgramDrafter drafter(2, 2);
  EXPECT_THAT(drafter.Propose(Ids{1, 2, 7, 1, 2, 8, 1, 2}, 1).tokens,
              ElementsAre(8));
}

TEST(NgramDrafter, ProposesNothingWithoutAMatch) {
  const NgramDrafter drafter(2, 4);
  EXPECT_THAT(drafter.Propose(Ids{1, 2, 3, 4, 5}, 5).tokens, IsEmpty());
  EXPECT_THAT(drafter.Propose(Ids{3, 1, 5, 1}, 5).tokens, IsEmpty())
      << "one token matches, two are wanted";
  EXPECT_THAT(drafter.Propose(Ids{1}, 5).tokens, IsEmpty());
  EXPECT_THAT(drafter.Propose(Ids{}, 5).tokens, IsEmpty());
}

TEST(NgramDrafter, ARunMayFollowItself) {
  const NgramDrafter drafter(2, 4);
  EXPECT_THAT(drafter.Propose(Ids{7, 7, 7}, 5).tokens, ElementsAre(7));
}

// Always drafts 1, 1, 1, ...
class Ones final : public Drafter {
 public:
  void Propose(std::span<const DraftRequest> requests) override {
    for (const auto& [sequence, max_tokens, draft] : requests) {
      *draft = {Ids(static_cast<size_t>(std::max(max_tokens, 0)), 1), kind};
    }
  }

  int32_t kind = 0;
};

// Steps of 2 ms, and so many more for each row.
StepCost CostOf(double row_seconds) {
  StepCost cost;
  for (int i = 0; i < 200; ++i) {
    for (const int32_t rows : {1, 2, 5, 20, 100}) {
      cost.Observe(ShapeOfRows(0, rows, rows),
                   2e-3 + row_seconds * static_cast<double>(rows));
    }
  }
  return cost;
}

struct World {
  explicit World(int32_t num_sequences) : sequences(num_sequences) {
    records.resize(sequences.size());
    for (size_t i = 0; i < sequences.size(); ++i) {
      sequences[i].tokens = {1, 2, 3};
      sequences[i].num_prompt = 3;
      sequences[i].num_computed = 2;
      sequences[i].max_output = 100;
    }
  }
  // The rows drafted for all.
  int32_t Choose(const StepCost& cost) {
    std::vector<Speculation::Target> targets;
    StepShape decodes;
    for (size_t i = 0; i < sequences.size(); ++i) {
      targets.push_back({&sequences[i], &records[i]});
      decodes += ShapeOfRows(2, 1, 1);
    }
    speculation.Propose(targets, decodes, cost);
    int32_t rows = 0;
    for (const Sequence& sequence : sequences) {
      rows += static_cast<int32_t>(sequence.draft.size());
    }
    return rows;
  }
  void Learn(bool come_true, int times) {
    for (int i = 0; i < times; ++i) {
      for (DraftRecord& record : records) {
        speculation.Learn(record, 0, Ids{come_true ? 1 : 5});
      }
    }
  }

  std::unique_ptr<Ones> ones = std::make_unique<Ones>();
  Ones& drafter = *ones;
  Speculation speculation{std::move(ones), 5};
  std::vector<Sequence> sequences;
  std::vector<DraftRecord> records;
};

TEST(Speculation, NothingIsDraftedBeforeAStepHasAPrice) {
  World world(1);
  EXPECT_EQ(world.Choose(StepCost()), 0);
}

TEST(Speculation, AcceptedDraftsGrowAndRejectedOnesStop) {
  const StepCost cost = CostOf(3e-4);
  World world(1);
  const int32_t at_first = world.Choose(cost);
  EXPECT_GE(at_first, 1);
  world.Learn(true, 30);
  EXPECT_EQ(world.Choose(cost), 5);
  world.Learn(false, 60);
  EXPECT_EQ(world.Choose(cost), 0);
  // Learnt from draft tokens that were not taken.
  world.Learn(true, 60);
  EXPECT_EQ(world.Choose(cost), 5);
}

TEST(Speculation, AFullBatchDraftsNothingUnlessNearlySure) {
  const StepCost cost = CostOf(3e-4);
  World world(64);  // 64 tokens in 21 ms: a row must gain 0.9 of a token
  EXPECT_EQ(world.Choose(cost), 0);
  World free(64);
  EXPECT_GT(free.Choose(CostOf(1e-6)), 64) << "rows cost nothing";
}

TEST(Speculation, ForcedTextIsTrustedMoreUntilItIsRejected) {
  const StepCost cost = CostOf(3e-4);
  World looked_up(1);
  World forced(1);
  forced.drafter.kind = kForcedKind;
  EXPECT_LT(looked_up.Choose(cost), forced.Choose(cost));
  EXPECT_EQ(forced.Choose(cost), 5);
  forced.Learn(false, 60);
  EXPECT_EQ(forced.Choose(cost), 0);
  forced.drafter.kind = 0;
  EXPECT_GT(forced.Choose(cost), 0) << "what is looked up is judged alone";
}

TEST(Speculation, NeverDraftsBeyondTheLongestCompletion) {
  const StepCost cost = CostOf(1e-6);
  World world(1);
  world.Choose(cost);
  world.Learn(true, 50);
  world.sequences[0].max_output = 3;
  EXPECT_EQ(world.Choose(cost), 2);
  world.sequences[0].max_output = 1;
  EXPECT_EQ(world.Choose(cost), 0);
}

}  // namespace
}  // namespace millrace::scheduler
