#include "scheduler/hold_back.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "config/base/clock.h"

namespace millrace::scheduler {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr PolicyLimits kLimits = {
    .max_tokens = 100, .max_seqs = 4, .max_samples = 50};

SequenceView Of(uint32_t tenant, SequenceView view) {
  view.tenant = tenant;
  view.tenant_alone = false;
  return view;
}
SequenceView Waiting(int32_t num_tokens) { return {.num_tokens = num_tokens}; }
SequenceView Running(int32_t num_tokens, int32_t num_computed) {
  return {.running = true,
          .num_tokens = num_tokens,
          .num_computed = num_computed,
          .num_pages = (num_tokens + 63) / 64};
}
SequenceView Decoding(int32_t num_tokens) {
  return Running(num_tokens, num_tokens - 1);
}

// The sequences with rows in the next step.
std::vector<int32_t> Next(FairSteps& steps, std::vector<SequenceView> views,
                          const PolicyLimits& limits = kLimits) {
  const Plan plan = steps.Make(views, [&](std::span<const SequenceView> seen) {
    return MakePlan(seen, 10, limits);
  });
  std::vector<int32_t> sequences;
  for (const PlannedRows& rows : plan.rows) sequences.push_back(rows.sequence);
  return sequences;
}

TEST(HoldBack, APromptHasEverySecondStepToItself) {
  FairSteps steps;
  const std::vector<SequenceView> views = {
      Of(1, Waiting(50)), Of(2, Decoding(9)), Of(2, Decoding(9))};
  EXPECT_THAT(Next(steps, views), ElementsAre(0));
  EXPECT_THAT(Next(steps, views), ElementsAre(1, 2, 0));
  EXPECT_THAT(Next(steps, views), ElementsAre(0));
}

TEST(HoldBack, ARunningPromptToo) {
  FairSteps steps;
  EXPECT_THAT(Next(steps, {Of(1, Running(200, 40)), Of(2, Decoding(9)),
                           Of(2, Running(200, 10)), Of(2, Waiting(5))}),
              ElementsAre(0));
}

TEST(HoldBack, OfATenantThatStandsBehindAllIsHeldButNothingOfItsOwn) {
  FairSteps steps;
  EXPECT_THAT(Next(steps, {Of(2, Running(90, 4)), Of(1, Waiting(50)),
                           Of(1, Decoding(9)), Of(2, Decoding(9))}),
              ElementsAre(2, 1));
}

TEST(HoldBack, ATenantThatWasGivenLessIsNotHeld) {
  FairSteps steps;
  // 3 has no prompt and stands before the tenant of the prompt, 2 behind it.
  EXPECT_THAT(
      Next(steps, {Of(3, Decoding(9)), Of(1, Waiting(50)), Of(2, Decoding(9))}),
      ElementsAre(0, 1));
}

TEST(HoldBack, OneTenantHoldsNothingOfItsOwn) {
  FairSteps steps;
  EXPECT_THAT(Next(steps, {Waiting(50), Decoding(9)}), ElementsAre(1, 0));
}

TEST(HoldBack, APromptThatFindsNoPlaceHoldsNobody) {
  FairSteps steps;
  const std::vector<SequenceView> views = {
      Of(1, Waiting(50)), Of(2, Decoding(9)), Of(2, Decoding(9))};
  PolicyLimits full = kLimits;
  full.max_seqs = 2;
  EXPECT_THAT(Next(steps, views, full), ElementsAre(1, 2));
  EXPECT_THAT(Next(steps, views), ElementsAre(0));
}

TEST(HoldBack, APromptThatFindsNoPlaceBesideADecodeOfItsTenantHoldsNobody) {
  FairSteps steps;
  PolicyLimits full = kLimits;
  full.max_seqs = 3;
  const std::vector<SequenceView> views = {
      Of(1, Decoding(9)), Of(1, Waiting(50)), Of(2, Decoding(9)),
      Of(2, Decoding(9))};
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(Next(steps, views, full), ElementsAre(0, 2, 3));
  }
  // A slot is free, but its tenant has all that one may take.
  PolicyLimits wide = kLimits;
  wide.max_seqs = 16;
  std::vector<SequenceView> most(14, Of(1, Decoding(9)));
  most.push_back(Of(1, Waiting(50)));
  most.push_back(Of(2, Decoding(9)));
  EXPECT_THAT(Next(steps, most, wide), Contains(15));
  // Its pages are lacking.
  const std::vector<SequenceView> large = {
      Of(1, Decoding(9)), Of(1, Waiting(11 * 64)), Of(2, Decoding(9))};
  EXPECT_THAT(Next(steps, large), ElementsAre(0, 2));
  EXPECT_THAT(Next(steps, views), ElementsAre(0, 1));
}

TEST(HoldBack, APromptThatWaitsForPagesHoldsNobody) {
  FairSteps steps;
  SequenceView fetching = Of(1, Waiting(50));
  fetching.fetching = true;
  EXPECT_THAT(Next(steps, {fetching, Of(2, Decoding(9))}), ElementsAre(1));
  SequenceView follows = Of(1, Waiting(50));
  follows.waits_for = 1;
  EXPECT_THAT(Next(steps, {follows, Of(2, Running(90, 5))}), ElementsAre(1));
}

TEST(HoldBack, SeveralTenantsLimitPromptsWithoutDecodes) {
  PolicyLimits limits = kLimits;
  limits.max_prompt_rows = 7;
  const std::vector<SequenceView> views = {Of(1, Waiting(50))};
  EXPECT_EQ(MakePlan(views, 10, limits).rows[0].num_rows, 50);
  limits.several_tenants = true;
  EXPECT_EQ(MakePlan(views, 10, limits).rows[0].num_rows, 7);
}

TEST(HoldBack, ATenantKnowsOfOthersThatDoNotAsk) {
  const std::vector<SequenceView> one = {Of(1, Waiting(50)), Of(1, Waiting(9))};
  EXPECT_TRUE(KnowSeveralTenants(one));
  EXPECT_FALSE(OfSeveralTenants(one));
  EXPECT_TRUE(OfSeveralTenants(
      std::vector{Of(1, Waiting(50)), Of(1, Waiting(9)), Of(2, Waiting(9))}));
  EXPECT_FALSE(KnowSeveralTenants(std::vector{Waiting(1)}));
  EXPECT_FALSE(OfSeveralTenants(std::vector<SequenceView>{}));
}

TEST(HoldBack, AStepIsShortestBesideDecodesThatNobodyHolds) {
  const SequenceView prompt = Of(1, Running(200, 40));
  SequenceView decode = Of(2, Decoding(9));
  EXPECT_EQ(StepPart(std::vector{prompt, Of(2, Waiting(9))}), kSharedStepPart);
  EXPECT_EQ(StepPart(std::vector{prompt, decode}), kSharedPartBesideDecodes);
  decode.held = true;
  EXPECT_EQ(StepPart(std::vector{prompt, decode}), 1);
}

TEST(AskingTenants, SeveralAskWhenTwoDidSoInTheLastSeconds) {
  constexpr auto kRecent = AskingTenants::kRecent;
  constexpr auto kSecond = std::chrono::seconds(1);
  FakeClock clock;
  AskingTenants asking;
  EXPECT_FALSE(asking.Several(clock.Now()));
  asking.Asked(1, clock.Now());
  asking.Asked(1, clock.Now());
  EXPECT_FALSE(asking.Several(clock.Now()));
  asking.Asked(0, clock.Now());
  EXPECT_TRUE(asking.Several(clock.Now()));
  // Now 0 goes on asking and 1 is silent.
  clock.Advance(kRecent);
  asking.Asked(0, clock.Now());
  EXPECT_TRUE(asking.Several(clock.Now()));
  clock.Advance(kSecond);
  asking.Asked(0, clock.Now());
  EXPECT_FALSE(asking.Several(clock.Now()));
  asking.Asked(1, clock.Now());
  EXPECT_TRUE(asking.Several(clock.Now()));
  clock.Advance(kRecent + kSecond);
  EXPECT_FALSE(asking.Several(clock.Now()));
}

TEST(HoldBack, NothingToDoIsAnEmptyPlan) {
  FairSteps steps;
  EXPECT_THAT(Next(steps, {}), IsEmpty());
}

}  // namespace
}  // namespace millrace::scheduler
