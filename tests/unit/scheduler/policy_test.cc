#include "scheduler/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <vector>

namespace millrace::scheduler {

bool operator==(const PlannedRows& a, const PlannedRows& b) {
  return a.sequence == b.sequence && a.num_rows == b.num_rows &&
         a.new_pages == b.new_pages;
}
std::ostream& operator<<(std::ostream& out, const PlannedRows& rows) {
  return out << "{sequence " << rows.sequence << ", " << rows.num_rows
             << " rows, " << rows.new_pages << " new pages}";
}

namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr PolicyLimits kLimits = {
    .max_tokens = 100, .max_seqs = 4, .max_samples = 50};

SequenceView Waiting(int32_t num_tokens) {
  return {.num_tokens = num_tokens, .num_pages = 0};
}
SequenceView Running(int32_t num_tokens, int32_t num_computed,
                     int32_t num_pages) {
  return {.running = true,
          .num_tokens = num_tokens,
          .num_computed = num_computed,
          .num_pages = num_pages};
}
// With all pages it needs for the next row.
SequenceView Decoding(int32_t num_tokens) {
  return Running(num_tokens, num_tokens - 1, (num_tokens + 63) / 64);
}
std::vector<PlannedRows> Rows(const Plan& plan) { return plan.rows; }

TEST(Policy, NothingToDoIsAnEmptyPlan) {
  EXPECT_THAT(Rows(MakePlan({}, 10, kLimits)), IsEmpty());
}

TEST(Policy, DecodesComeBeforePromptsBeforeNewcomers) {
  const std::vector<SequenceView> views = {Running(90, 40, 2), Waiting(30),
                                           Decoding(10)};
  const Plan plan = MakePlan(views, 10, kLimits);
  EXPECT_THAT(Rows(plan),
              ElementsAre(PlannedRows{2, 1, 0}, PlannedRows{0, 50, 0},
                          PlannedRows{1, 30, 1}));
  EXPECT_THAT(plan.admitted, ElementsAre(1));
  EXPECT_THAT(plan.preempted, IsEmpty());
}

TEST(Policy, PromptsAreCutAtTheTokenBudget) {
  const std::vector<SequenceView> views = {Decoding(10), Waiting(150),
                                           Waiting(5)};
  const Plan plan = MakePlan(views, 10, kLimits);
  // Pages for the whole prompt at once; no budget is left for the third.
  EXPECT_THAT(Rows(plan),
              ElementsAre(PlannedRows{0, 1, 0}, PlannedRows{1, 99, 3}));
  EXPECT_THAT(plan.admitted, ElementsAre(1));
}

TEST(Policy, DecodeTakesAPageAtABoundary) {
  const std::vector<SequenceView> views = {Running(65, 64, 1)};
  EXPECT_THAT(Rows(MakePlan(views, 1, kLimits)),
              ElementsAre(PlannedRows{0, 1, 1}));
}

TEST(Policy, LastRunningIsPreemptedWhenPagesRunOut) {
  const std::vector<SequenceView> views = {Running(65, 64, 1), Decoding(100),
                                           Running(70, 20, 2), Waiting(1)};
  const Plan plan = MakePlan(views, 0, kLimits);
  EXPECT_THAT(plan.preempted, ElementsAre(2));
  EXPECT_THAT(Rows(plan),
              ElementsAre(PlannedRows{0, 1, 1}, PlannedRows{1, 1, 0}));
  EXPECT_THAT(plan.admitted, IsEmpty()) << "nobody comes in at a shortage";
}

TEST(Policy, SequenceThatWantsAPageMayBeTheVictimItself) {
  const std::vector<SequenceView> views = {Decoding(10), Running(65, 64, 1)};
  const Plan plan = MakePlan(views, 0, kLimits);
  EXPECT_THAT(plan.preempted, ElementsAre(1));
  EXPECT_THAT(Rows(plan), ElementsAre(PlannedRows{0, 1, 0}));
}

TEST(Policy, NobodyOvertakesAWaitingSequenceThatDoesNotFit) {
  const std::vector<SequenceView> views = {Decoding(10), Waiting(640),
                                           Waiting(1)};
  const Plan plan = MakePlan(views, 9, kLimits);
  EXPECT_THAT(plan.admitted, IsEmpty());
}

TEST(Policy, AdmissionStopsAtMaxSeqs) {
  const std::vector<SequenceView> views(6, Waiting(1));
  EXPECT_THAT(MakePlan(views, 10, kLimits).admitted, ElementsAre(0, 1, 2, 3));
}

TEST(Policy, AdmissionLeavesAPageForADecodeThatWillWantOneSoon) {
  const std::vector<SequenceView> soon = {Decoding(60), Waiting(1)};
  EXPECT_THAT(MakePlan(soon, 1, kLimits).admitted, IsEmpty());
  EXPECT_THAT(MakePlan(soon, 2, kLimits).admitted, ElementsAre(1));
  const std::vector<SequenceView> later = {Decoding(20), Waiting(1)};
  EXPECT_THAT(MakePlan(later, 1, kLimits).admitted, ElementsAre(1));
}

TEST(Policy, LoneSequenceMayTakeTheWholePool) {
  const std::vector<SequenceView> views = {Waiting(640)};
  EXPECT_THAT(Rows(MakePlan(views, 10, kLimits)),
              ElementsAre(PlannedRows{0, 100, 10}));
}

TEST(Policy, ScoredRowsAreCutAtTheSampleBudget) {
  SequenceView scored = Waiting(90);
  scored.score_end = 89;
  const std::vector<SequenceView> views = {Decoding(10), scored, Waiting(5)};
  const Plan plan = MakePlan(views, 10, kLimits);
  // 50 samples: one decodes, 49 rows are scored, none is left for a sequence
  // that would complete its prompt, but its first four rows need none.
  EXPECT_THAT(Rows(plan),
              ElementsAre(PlannedRows{0, 1, 0}, PlannedRows{1, 49, 2},
                          PlannedRows{2, 4, 1}));
}

TEST(Policy, RowsScoredBeforeAPreemptionCostNothingAgain) {
  SequenceView again = Waiting(90);
  again.score_begin = 80;
  again.score_end = 89;
  const std::vector<SequenceView> views = {again};
  const PolicyLimits limits = {
      .max_tokens = 100, .max_seqs = 4, .max_samples = 10};
  EXPECT_THAT(Rows(MakePlan(views, 10, limits)),
              ElementsAre(PlannedRows{0, 90, 2}));
}

TEST(Policy, DecodesMissNoStepForATokenBudget) {
  const std::vector<SequenceView> views(3, Decoding(10));
  const PolicyLimits limits = {
      .max_tokens = 2, .max_seqs = 4, .max_samples = 4};
  EXPECT_THAT(Rows(MakePlan(views, 10, limits)),
              ElementsAre(PlannedRows{0, 1, 0}, PlannedRows{1, 1, 0},
                          PlannedRows{2, 1, 0}));
}

TEST(Policy, PromptsGoOnByARowBesideDecodesThatExceedTheBudget) {
  const PolicyLimits limits = {
      .max_tokens = 2, .max_seqs = 4, .max_samples = 4};
  const std::vector<SequenceView> running = {Decoding(10), Running(90, 40, 2),
                                             Decoding(10), Decoding(10)};
  EXPECT_THAT(Rows(MakePlan(running, 10, limits)),
              ElementsAre(PlannedRows{0, 1, 0}, PlannedRows{2, 1, 0},
                          PlannedRows{3, 1, 0}, PlannedRows{1, 1, 0}));
  // A newcomer, too; the second one waits for the next step.
  const std::vector<SequenceView> waiting = {Decoding(10), Decoding(10),
                                             Waiting(90), Waiting(90)};
  const Plan plan = MakePlan(waiting, 10, limits);
  EXPECT_THAT(Rows(plan),
              ElementsAre(PlannedRows{0, 1, 0}, PlannedRows{1, 1, 0},
                          PlannedRows{2, 1, 2}));
  EXPECT_THAT(plan.admitted, ElementsAre(2));
}

TEST(Policy, NewcomerStartsBehindWhatItFinds) {
  SequenceView newcomer = Waiting(200);  // 4 pages
  newcomer.num_computed = 128;
  newcomer.num_pages = 2;
  newcomer.num_revived = 1;
  // Two fresh pages, and the cached one is no longer available.
  EXPECT_THAT(Rows(MakePlan(std::vector{newcomer}, 3, kLimits)),
              ElementsAre(PlannedRows{0, 72, 2}));
  EXPECT_THAT(Rows(MakePlan(std::vector{newcomer}, 2, kLimits)), IsEmpty());
}

TEST(Policy, WaitsForARunningSequenceAndLetsOthersPass) {
  SequenceView follower = Waiting(30);
  follower.waits_for = 0;
  const std::vector<SequenceView> views = {Running(90, 40, 2), follower,
                                           Waiting(10)};
  EXPECT_THAT(MakePlan(views, 10, kLimits).admitted, ElementsAre(2));
}

TEST(Policy, WaitsForASequenceThatStartsInTheSameStep) {
  SequenceView follower = Waiting(30);
  follower.waits_for = 0;
  EXPECT_THAT(
      MakePlan(std::vector{Waiting(30), follower}, 10, kLimits).admitted,
      ElementsAre(0));
}

TEST(Policy, SharedPagesComeBackWithTheirLastHolder) {
  const std::vector<models::PageId> shared = {models::PageId{0},
                                              models::PageId{1}};
  const auto sharing = [&](SequenceView view) {
    view.shared = shared;
    return view;
  };
  // The first decode wants a page. The last holder but one gives back only the
  // page that is its own.
  const std::vector<SequenceView> views = {Running(65, 64, 1),
                                           sharing(Running(150, 149, 3)),
                                           sharing(Running(150, 149, 3))};
  EXPECT_THAT(MakePlan(views, 0, kLimits).preempted, ElementsAre(2));
  // Both hold the shared pages only: the second preemption frees them.
  const std::vector<SequenceView> bare = {Running(65, 64, 1),
                                          sharing(Running(128, 127, 2)),
                                          sharing(Running(128, 127, 2))};
  const Plan plan = MakePlan(bare, 0, kLimits);
  EXPECT_THAT(plan.preempted, ElementsAre(2, 1));
  EXPECT_THAT(Rows(plan), ElementsAre(PlannedRows{0, 1, 1}));
}

TEST(Policy, PromptsBesideDecodesHaveABudgetOfTheirOwn) {
  PolicyLimits limits = kLimits;
  limits.max_prompt_rows = 20;
  EXPECT_THAT(
      Rows(MakePlan(std::vector{Decoding(10), Waiting(150)}, 10, limits)),
      ElementsAre(PlannedRows{0, 1, 0}, PlannedRows{1, 20, 3}));
  // Nobody is kept waiting: the whole step.
  EXPECT_THAT(Rows(MakePlan(std::vector{Waiting(150)}, 10, limits)),
              ElementsAre(PlannedRows{0, 100, 3}));
}

SequenceView Drafting(int32_t num_tokens, int32_t num_draft) {
  SequenceView view = Decoding(num_tokens);
  view.num_draft = num_draft;
  return view;
}

TEST(Policy, DraftsFollowAllDecodes) {
  PolicyLimits limits = kLimits;
  limits.max_samples = 6;
  // Two decodes, then draft tokens while samples last.
  const Plan plan =
      MakePlan(std::vector{Drafting(10, 3), Drafting(20, 3)}, 10, limits);
  ASSERT_EQ(plan.rows.size(), 2u);
  EXPECT_EQ(plan.rows[0].num_rows, 4);
  EXPECT_EQ(plan.rows[0].num_draft, 3);
  EXPECT_EQ(plan.rows[1].num_rows, 2);
  EXPECT_EQ(plan.rows[1].num_draft, 1);
}

TEST(Policy, DraftsLeaveARowForPrompts) {
  const PolicyLimits limits = {
      .max_tokens = 8, .max_seqs = 4, .max_samples = 8};
  const Plan plan =
      MakePlan(std::vector{Drafting(10, 20), Waiting(30)}, 10, limits);
  ASSERT_EQ(plan.rows.size(), 2u);
  EXPECT_EQ(plan.rows[0].num_draft, 6);
  EXPECT_EQ(plan.rows[1].num_rows, 1);
}

TEST(Policy, DraftsTakeNoPageThatSomebodyWillWant) {
  // The draft tokens of the first reach into a new page.
  const SequenceView drafting = Drafting(62, 8);
  EXPECT_EQ(MakePlan(std::vector{drafting}, 2, kLimits).rows[0].num_draft, 8);
  EXPECT_EQ(MakePlan(std::vector{drafting}, 2, kLimits).rows[0].new_pages, 1);
  // Both will want the only page soon: draft tokens stay in the pages there
  // are.
  const Plan tight = MakePlan(std::vector{drafting, Decoding(60)}, 1, kLimits);
  EXPECT_EQ(tight.rows[0].num_draft, 2);
  EXPECT_EQ(tight.rows[0].new_pages, 0);
}

// A page table of so many places, of which the first were given back.
PageTable Table(int32_t size, int32_t num_given_back) {
  PageTable table;
  table.pages.resize(static_cast<size_t>(size));
  table.num_given_back = num_given_back;
  return table;
}

TEST(Policy, ADecodeTakesAPageOfEachGroup) {
  const std::vector<PageTable> more = {Table(2, 1)};
  SequenceView view = Running(129, 128, 2);
  view.num_tables = 2;
  view.more_tables = more;
  EXPECT_THAT(Rows(MakePlan(std::vector{view}, 2, kLimits)),
              ElementsAre(PlannedRows{0, 1, 2}));
  // One page is too few: the last is preempted, and gives 2 + 2 - 1 pages.
  SequenceView last = view;
  last.num_given_back = 1;
  const Plan plan = MakePlan(std::vector{view, last}, 1, kLimits);
  EXPECT_THAT(plan.preempted, ElementsAre(1));
  EXPECT_THAT(Rows(plan), ElementsAre(PlannedRows{0, 1, 2}));
}

TEST(Policy, ANewcomerTakesWhatItNeedsToStart) {
  SequenceView view = Waiting(1000);
  view.num_at_start = 7;
  EXPECT_THAT(Rows(MakePlan(std::vector{view}, 7, kLimits)),
              ElementsAre(PlannedRows{0, 100, 7}));
  EXPECT_THAT(Rows(MakePlan(std::vector{view}, 6, kLimits)), IsEmpty());
}

// Of a window whose pages others hold, too.
TEST(Policy, APromptThatLacksAPageTakesWhatThereIsBeforeNewcomers) {
  const std::vector<PageTable> more = {Table(2, 0)};
  SequenceView view = Running(1000, 100, 16);
  view.num_tables = 2;
  view.more_tables = more;
  // Up to the end of its second page; then to that of the third.
  const std::vector<SequenceView> views = {view, Waiting(20)};
  EXPECT_THAT(Rows(MakePlan(views, 0, kLimits)),
              ElementsAre(PlannedRows{0, 28, 0}));
  EXPECT_THAT(Rows(MakePlan(std::vector{view}, 1, kLimits)),
              ElementsAre(PlannedRows{0, 92, 1}));
  // It cannot go on: the decode does, and the newcomer waits.
  view.num_computed = 128;
  const Plan plan =
      MakePlan(std::vector{view, Decoding(10), Waiting(20)}, 0, kLimits);
  EXPECT_THAT(Rows(plan), ElementsAre(PlannedRows{1, 1, 0}));
  EXPECT_THAT(plan.admitted, IsEmpty());
  EXPECT_THAT(plan.preempted, IsEmpty());
}

TEST(Policy, WhereAllPromptsLackAPageTheLastIsPreempted) {
  const std::vector<PageTable> more = {Table(2, 0)};
  SequenceView view = Running(1000, 128, 16);
  view.num_tables = 2;
  view.more_tables = more;
  const Plan plan = MakePlan(std::vector{view, view}, 0, kLimits);
  EXPECT_THAT(plan.preempted, ElementsAre(1));
  EXPECT_THAT(Rows(plan), ElementsAre(PlannedRows{0, 100, 2}));
}

}  // namespace
}  // namespace millrace::scheduler
