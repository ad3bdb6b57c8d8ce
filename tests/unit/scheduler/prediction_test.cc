#include "scheduler/prediction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "scheduler/speculation.h"

namespace millrace::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Ids = std::vector<int32_t>;

TEST(Prediction, IsProposedFromItsBeginningOnAndEndsWithItsText) {
  Prediction prediction(Ids{10, 11, 12, 13});
  EXPECT_THAT(prediction.Propose(Ids{}, 2), ElementsAre(10, 11));
  EXPECT_THAT(prediction.Propose(Ids{10}, 2), ElementsAre(11, 12));
  EXPECT_THAT(prediction.Propose(Ids{10, 11, 12}, 2), ElementsAre(13));
  EXPECT_THAT(prediction.Propose(Ids{10, 11, 12, 13}, 2), IsEmpty());
  EXPECT_THAT(prediction.Propose(Ids{10, 11, 12, 13, 9}, 2), IsEmpty());
}

TEST(Prediction, NothingComesOfNothing) {
  Prediction prediction;
  EXPECT_THAT(prediction.Propose(Ids{1, 2}, 5), IsEmpty());
  EXPECT_THAT(Prediction(Ids{1, 2}).Propose(Ids{}, 0), IsEmpty());
}

TEST(Prediction, GoesOnBehindADivergence) {
  Prediction prediction(Ids{10, 11, 12, 13, 14, 15, 16});
  //   the completion says 50 where 12 was expected
  EXPECT_THAT(prediction.Propose(Ids{10, 11, 50}, 3), IsEmpty());
  EXPECT_THAT(prediction.Propose(Ids{10, 11, 50, 13}, 3), IsEmpty())
      << "one token says little";
  EXPECT_THAT(prediction.Propose(Ids{10, 11, 50, 13, 14}, 3),
              ElementsAre(15, 16));
}

TEST(Prediction, GoesOnBehindWhatIsPutInAndWhatIsLeftOut) {
  Prediction prediction(Ids{10, 11, 12, 13, 14, 15, 16});
  EXPECT_THAT(prediction.Propose(Ids{10, 11, 70, 71, 72, 12, 13}, 2),
              ElementsAre(14, 15));
  EXPECT_THAT(prediction.Propose(Ids{10, 11, 70, 71, 72, 12, 13, 15, 16}, 2),
              IsEmpty())
      << "all of it is said";
}

TEST(Prediction, TheLongestMatchWinsThenTheNextOne) {
  //                       divergence: 2 was expected, 7 came
  Prediction prediction(Ids{1, 2, 8, 9, 3, 8, 9, 4, 5, 8, 9, 6});
  EXPECT_THAT(prediction.Propose(Ids{1, 7, 8, 9}, 1), ElementsAre(3));
  EXPECT_THAT(prediction.Propose(Ids{1, 7, 8, 9, 5, 8, 9}, 1), ElementsAre(6));
  // Behind its end the beginning is looked at.
  EXPECT_THAT(prediction.Propose(Ids{1, 7, 8, 9, 5, 8, 9, 0, 1, 2}, 1),
              ElementsAre(8));
}

TEST(Prediction, ThePlaceIsKeptWhereTheTextRepeatsItself) {
  Prediction prediction(Ids{5, 6, 5, 6, 5, 6, 7});
  EXPECT_THAT(prediction.Propose(Ids{5, 6, 5, 6}, 3), ElementsAre(5, 6, 7));
}

struct World {
  explicit World(Ids predicted) {
    sequence.tokens = {1, 2, 3, 20};
    sequence.num_prompt = 3;
    sequence.num_computed = 3;
    sequence.max_output = 100;
    record.prediction = Prediction(std::move(predicted));
  }
  void Propose() {
    const Speculation::Target target = {&sequence, &record};
    speculation.Propose({&target, 1}, ShapeOfRows(3, 1, 1), {});
  }

  // Drafts 9, 9, 9, …
  class Nines final : public Drafter {
    void Propose(std::span<const DraftRequest> requests) override {
      for (const DraftRequest& request : requests) {
        *request.draft = {Ids(static_cast<size_t>(request.max_tokens), 9)};
      }
    }
  };
  Speculation speculation{std::make_unique<Nines>(), 3, /*always=*/true};
  Sequence sequence;
  DraftRecord record;
};

TEST(Prediction, ComesBeforeTheDrafter) {
  World world(Ids{20, 21, 22, 23, 24});
  world.Propose();
  EXPECT_THAT(world.sequence.draft, ElementsAre(21, 22, 23));
  EXPECT_EQ(world.record.draft.kind, kPredictedKind);
  World other(Ids{40, 41, 42});
  other.Propose();
  EXPECT_THAT(other.sequence.draft, ElementsAre(9, 9, 9));
}

TEST(Prediction, WhatAStepCheckedIsCounted) {
  World world(Ids{20, 21, 22, 23, 24});
  world.Propose();
  world.speculation.Learn(world.record, 3, Ids{21, 22, 50});
  EXPECT_EQ(world.record.prediction.counts().accepted, 2);
  EXPECT_EQ(world.record.prediction.counts().rejected, 1);
  // Proposed, but no step had room for it.
  world.speculation.Learn(world.record, 0, Ids{21});
  EXPECT_EQ(world.record.prediction.counts().accepted, 2);
  // The draft of a drafter is none of the prediction.
  world.sequence.tokens.push_back(60);
  world.Propose();
  world.speculation.Learn(world.record, 3, Ids{9, 9});
  EXPECT_EQ(world.record.prediction.counts().accepted, 2);
  EXPECT_EQ(world.record.prediction.counts().rejected, 1);
}

}  // namespace
}  // namespace millrace::scheduler
