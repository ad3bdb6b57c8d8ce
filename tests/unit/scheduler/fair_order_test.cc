#include "scheduler/fair_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "scheduler/page_manager.h"
#include "scheduler/policy.h"
#include "scheduler/sequence.h"

namespace millrace::scheduler {
namespace {

constexpr TenantShare kFlood = {.id = 1, .weight = 1, .alone = false};
constexpr TenantShare kQuiet = {.id = 2, .weight = 1, .alone = false};

TEST(FairOrder, OneTenantRunsInOrderOfArrival) {
  FairOrder order;
  int64_t last = order.Tag({}, 10);
  for (int i = 0; i < 100; ++i) {
    const int64_t next = order.Tag({}, 10);
    EXPECT_LT(last, next);
    if (i % 3 == 0) order.Started(last);
    last = next;
  }
}

TEST(FairOrder, AWithdrawnRequestCostsNothing) {
  FairOrder order;
  order.Tag(kQuiet, 100);
  const int64_t queued = order.Tag(kQuiet, 50'000);
  order.Ended(kQuiet, 50'000, std::nullopt);
  EXPECT_EQ(order.Tag(kQuiet, 100), queued);
  order.Ended(kFlood, 100, 1000);  // never asked
  EXPECT_EQ(order.Tag(kFlood, 100), FairOrder().Tag(kFlood, 100));
}

// Both ask as often as the other, one request at a time, with equal prompts:
// who generates little stands first, although each request looks the same when
// it comes.
TEST(FairOrder, ATenantPaysForWhatItGenerates) {
  FairOrder order;
  order.Tag(kFlood, 100);
  order.Tag(kQuiet, 100);
  for (int i = 0; i < 20; ++i) {
    order.Ended(kFlood, 100, 128);
    order.Ended(kQuiet, 100, 4);
    const int64_t quiet = order.Tag(kQuiet, 100);
    const int64_t flood = order.Tag(kFlood, 100);
    EXPECT_LT(quiet, flood);
    order.Started(quiet);
    order.Started(flood);
  }
}

TEST(FairOrder, ShortCompletionsLetNoLaterRequestOfTheirTenantPass) {
  FairOrder order;
  int64_t last = 0;
  for (int i = 0; i < 20; ++i) last = order.Tag(kFlood, 10);
  for (int i = 0; i < 19; ++i) order.Ended(kFlood, 10, 0);
  EXPECT_GE(order.Tag(kFlood, 10), last);
}

TEST(FairOrder, AQuietTenantStandsBeforeWhatAFloodHasBegun) {
  FairOrder order;
  int64_t begun = 0;
  for (int i = 0; i < 1000; ++i) begun = order.Tag(kFlood, 100);
  order.Started(begun);
  EXPECT_LT(order.Tag(kQuiet, 100), begun);
}

// Requests of 128 tokens and as many for the completion, all there from the
// first moment: by their tags the weights show.
TEST(FairOrder, WeightsAreSharesOfWhatRuns) {
  FairOrder order;
  std::vector<std::pair<int64_t, int>> tags;
  for (int i = 0; i < 300; ++i) {
    tags.emplace_back(order.Tag({1, 3, false}, 128), 1);
    tags.emplace_back(order.Tag({2, 1, false}, 128), 2);
  }
  std::ranges::sort(tags);
  const auto heavy =
      std::count_if(tags.begin(), tags.begin() + 200,
                    [](const auto& each) { return each.second == 1; });
  EXPECT_NEAR(heavy, 150, 1);
}

TEST(FairOrder, IdleTimeIsNoClaim) {
  FairOrder order;
  for (int i = 0; i < 10'000; ++i) order.Started(order.Tag(kFlood, 128));
  // The quiet one floods now: its credit ends, and both take turns.
  std::vector<std::pair<int64_t, int>> tags;
  for (int i = 0; i < 1000; ++i) {
    tags.emplace_back(order.Tag(kFlood, 128), 1);
    tags.emplace_back(order.Tag(kQuiet, 128), 2);
  }
  std::ranges::sort(tags);
  const auto quiet =
      std::count_if(tags.begin(), tags.begin() + 500,
                    [](const auto& each) { return each.second == 2; });
  // 2048 tokens of credit are 8 requests; half of the rest is its own.
  EXPECT_NEAR(quiet, 8 + (500 - 8) / 2, 2);
}

// A small engine of integers: no clock, no tokens, only the order.
class Machine {
 public:
  Machine(int32_t max_seqs, int32_t max_tokens)
      : limits_{.max_tokens = max_tokens,
                .max_seqs = max_seqs,
                .max_samples = max_seqs} {}

  int Add(const TenantShare& tenant, int32_t num_prompt, int32_t num_output) {
    Sequence sequence;
    sequence.tokens.assign(static_cast<size_t>(num_prompt), 7);
    sequence.num_prompt = num_prompt;
    sequence.max_output = num_output;
    sequence.tenant = tenant.id;
    sequence.tenant_alone = tenant.alone;
    sequence.arrival = arrivals_;
    sequence.start_tag = order_.Tag(tenant, num_prompt);
    const auto place = std::ranges::upper_bound(
        waiting_, sequence,
        [](const Sequence& a, const Sequence& b) { return a.Before(b); });
    waiting_.insert(place, std::move(sequence));
    return static_cast<int>(arrivals_++);
  }

  void Step() {
    std::vector<SequenceView> views;
    for (const Sequence& each : waiting_) views.push_back(View(each));
    const Plan plan = MakePlan(views, 100'000, limits_);
    for (const int32_t i : plan.admitted) {
      waiting_[i].slot = 0;
      waiting_[i].tables[0].pages.resize(PagesFor(waiting_[i].num_tokens()));
      order_.Started(waiting_[i].start_tag);
    }
    for (const PlannedRows& rows : plan.rows) {
      Sequence& sequence = waiting_[rows.sequence];
      sequence.num_computed += rows.num_rows;
      sequence.tables[0].pages.resize(PagesFor(sequence.num_tokens() + 1));
      if (sequence.num_computed < sequence.num_tokens()) continue;
      if (sequence.num_output() == 0) first_tokens_.push_back(sequence.arrival);
      sequence.tokens.push_back(7);
    }
    std::erase_if(waiting_, [](const Sequence& each) {
      return each.num_output() >= each.max_output;
    });
  }

  // Steps until this one has its first token.
  int StepsUntilFirstToken(int64_t arrival) {
    for (int steps = 1; steps < 10'000; ++steps) {
      Step();
      if (std::ranges::count(first_tokens_, arrival) > 0) return steps;
    }
    return -1;
  }

  int num_running(uint32_t tenant) const {
    return static_cast<int>(
        std::ranges::count_if(waiting_, [tenant](const Sequence& each) {
          return each.running() && each.tenant == tenant;
        }));
  }

 private:
  const PolicyLimits limits_;
  FairOrder order_;
  std::vector<Sequence> waiting_;  // and running, in their order
  std::vector<int64_t> first_tokens_;
  int64_t arrivals_ = 0;
};

TEST(FairOrder, AFloodOfLongPromptsCostsAQuietTenantNoStep) {
  for (const int32_t prompt : {10, 64, 200, 1000}) {
    Machine alone(16, 64);
    const int64_t first = alone.Add(kQuiet, prompt, 4);
    const int by_itself = alone.StepsUntilFirstToken(first);

    Machine crowded(16, 64);
    for (int i = 0; i < 200; ++i) crowded.Add(kFlood, 500, 50);
    for (int i = 0; i < 77; ++i) crowded.Step();
    const int64_t asked = crowded.Add(kQuiet, prompt, 4);
    // Decodes of the flood take rows of each step: up to 14 of 64.
    EXPECT_LE(crowded.StepsUntilFirstToken(asked), by_itself * 1.5 + 0.5)
        << prompt;
  }
}

TEST(FairOrder, TheLastEighthOfTheSlotsIsLeftToOthers) {
  Machine machine(16, 64);
  for (int i = 0; i < 100; ++i) machine.Add(kFlood, 4, 1000);
  for (int i = 0; i < 50; ++i) machine.Step();
  EXPECT_EQ(machine.num_running(kFlood.id), 14);
  const int64_t asked = machine.Add(kQuiet, 8, 4);
  EXPECT_EQ(machine.StepsUntilFirstToken(asked), 1);
  Machine single(16, 64);
  for (int i = 0; i < 100; ++i) single.Add({}, 4, 1000);
  for (int i = 0; i < 50; ++i) single.Step();
  EXPECT_EQ(single.num_running(0), 16);
}

}  // namespace
}  // namespace millrace::scheduler
