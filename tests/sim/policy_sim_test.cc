// Random days in the life of policy and pages: arrivals, cancellations, faults
// and steps in every order, with every invariant looked at after each plan. No
// threads and no clock, so a seed that fails fails again; it is printed.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "scheduler/page_manager.h"
#include "scheduler/policy.h"
#include "scheduler/sequence.h"
#include "scheduler/step_builder.h"

namespace millrace::scheduler {
namespace {

class World {
 public:
  explicit World(uint32_t seed)
      : random_(seed),
        limits_(RandomLimits()),
        pages_(Uniform(1, 24)),
        batch_(Capacity()) {
    arrivals_left_ = Uniform(1, 40);
    fault_every_ = Uniform(0, 3) == 0 ? Uniform(5, 50) : 0;
    cancel_every_ = Uniform(0, 1) == 0 ? Uniform(2, 30) : 0;
  }

  // Until all that ever arrived has ended.
  void Run() {
    while (arrivals_left_ > 0 || !live_.empty()) {
      if (arrivals_left_ > 0 && Uniform(0, 2) == 0) Arrive();
      if (cancel_every_ > 0 && Uniform(1, cancel_every_) == 1) Cancel();
      Step();
      if (testing::Test::HasFailure()) return;
    }
    EXPECT_EQ(pages_.used(), 0);
    EXPECT_EQ(pages_.free() + pages_.cached(), pages_.total());
  }

  int64_t preemptions() const { return preemptions_; }

 private:
  int32_t Uniform(int32_t low, int32_t high) {
    return std::uniform_int_distribution<int32_t>(low, high)(random_);
  }

  PolicyLimits RandomLimits() {
    PolicyLimits limits;
    limits.max_seqs = Uniform(1, 12);
    limits.max_tokens = Uniform(0, 1) == 0 ? Uniform(1, 20) : Uniform(20, 400);
    limits.max_samples = Uniform(1, 40);
    return limits;
  }

  models::StepLimits Capacity() const {
    return {.max_tokens = limits_.max_tokens,
            .max_seqs = limits_.max_seqs,
            .max_pages_per_seq = pages_.total(),
            .max_samples = limits_.max_samples};
  }

  void Arrive() {
    --arrivals_left_;
    const int32_t room = pages_.total() * models::kPageTokens;
    auto sequence = std::make_unique<Sequence>();
    sequence->num_prompt = Uniform(1, std::min(room - 1, 500));
    sequence->tokens.resize(sequence->num_prompt);
    sequence->max_answer =
        Uniform(1, std::min(room - sequence->num_prompt, 200));
    sequence->score_prompt = Uniform(0, 4) == 0;
    sequence->priority = Uniform(0, 2);
    sequence->arrival = num_arrived_++;
    work_ += sequence->num_prompt + sequence->max_answer;
    const auto place = std::upper_bound(
        live_.begin(), live_.end(), sequence,
        [](const auto& a, const auto& b) { return a->Before(*b); });
    live_.insert(place, std::move(sequence));
  }

  void Cancel() {
    if (live_.empty()) return;
    const int32_t i = Uniform(0, static_cast<int32_t>(live_.size()) - 1);
    pages_.Release(live_[i]->pages);
    live_.erase(live_.begin() + i);
  }

  void Step() {
    std::vector<SequenceView> views;
    for (const auto& sequence : live_) views.push_back(View(*sequence));
    const Plan plan = MakePlan(views, pages_.free(), limits_);
    CheckShape(views, plan);
    CheckOrder(views, plan);
    if (testing::Test::HasFailure()) return;
    ++steps_;
    CarryOut(plan);
    CheckPages();
    if (testing::Test::HasFailure()) return;
    if (fault_every_ > 0 && Uniform(1, fault_every_) == 1) {
      EndAllRunning();
    } else {
      Apply(plan);
    }
    CheckPages();
    // Generous: every token computed, on average, once more for nothing.
    ASSERT_LE(steps_, 100 + 2 * work_) << "somebody starves";
  }

  static void CheckShape(const std::vector<SequenceView>& views,
                         const Plan& plan) {
    // Rows name each sequence once, newcomers are among them.
    std::set<int32_t> planned;
    for (const PlannedRows& rows : plan.rows) {
      ASSERT_TRUE(planned.insert(rows.sequence).second);
      ASSERT_GT(rows.num_rows, 0);
      ASSERT_GE(rows.new_pages, 0);
    }
    for (const int32_t i : plan.preempted) {
      ASSERT_TRUE(views[i].running);
      ASSERT_FALSE(planned.contains(i));
    }
    for (const int32_t i : plan.admitted) {
      ASSERT_FALSE(views[i].running);
      ASSERT_TRUE(planned.contains(i));
    }
    ASSERT_EQ(plan.rows.empty(), views.empty()) << "a step without progress";
  }

  static int32_t CountSamples(const SequenceView& view, int32_t num_rows) {
    int32_t samples = 0;
    for (int32_t row = view.num_computed; row < view.num_computed + num_rows;
         ++row) {
      samples += (row >= view.score_begin && row < view.score_end) ||
                 row + 1 == view.num_tokens;
    }
    return samples;
  }

  void CheckOrder(const std::vector<SequenceView>& views, const Plan& plan) {
    const auto n = static_cast<int32_t>(views.size());
    std::vector<bool> runs(n), planned(n, false);
    for (int32_t i = 0; i < n; ++i) runs[i] = views[i].running;
    for (const int32_t i : plan.preempted) runs[i] = false;

    // Victims stand behind every sequence that goes on running.
    for (const int32_t victim : plan.preempted) {
      for (int32_t i = victim; i < n; ++i) {
        ASSERT_FALSE(runs[i]) << i << " runs on, before it " << victim;
      }
    }
    if (!plan.preempted.empty()) {
      ASSERT_TRUE(plan.admitted.empty());
    }
    // Nobody overtakes: newcomers are the first of those that waited.
    int32_t num_waiting = 0;
    for (int32_t i = 0; i < n; ++i) {
      if (views[i].running) continue;
      ASSERT_EQ(std::ranges::count(plan.admitted, i),
                num_waiting < static_cast<int32_t>(plan.admitted.size()));
      ++num_waiting;
    }
    for (const int32_t i : plan.admitted) runs[i] = true;
    ASSERT_LE(std::ranges::count(runs, true), limits_.max_seqs);

    // Decodes before prompts before newcomers; budgets kept.
    int32_t tokens = 0;
    int32_t samples = 0;
    int32_t kind = 0;
    for (const PlannedRows& rows : plan.rows) {
      const SequenceView& view = views[rows.sequence];
      planned[rows.sequence] = true;
      ASSERT_TRUE(runs[rows.sequence]);
      tokens += rows.num_rows;
      samples += CountSamples(view, rows.num_rows);
      const int32_t its_kind = !view.running                              ? 2
                               : view.num_tokens - view.num_computed == 1 ? 0
                                                                          : 1;
      ASSERT_LE(kind, its_kind) << "a decode stands behind a prompt";
      kind = its_kind;
    }
    ASSERT_LE(tokens, limits_.max_tokens);
    ASSERT_LE(samples, limits_.max_samples);
    for (int32_t i = 0; i < n; ++i) {
      if (!runs[i] || planned[i]) continue;
      if (views[i].num_tokens - views[i].num_computed == 1) {
        ASSERT_TRUE(tokens == limits_.max_tokens ||
                    samples == limits_.max_samples)
            << "decode " << i << " is left though there is room";
      }
    }
  }

  void CarryOut(const Plan& plan) {
    preemptions_ += static_cast<int64_t>(plan.preempted.size());
    for (const int32_t i : plan.preempted) {
      pages_.Release(live_[i]->pages);
      live_[i]->slot = -1;
      live_[i]->num_computed = 0;
    }
    for (const int32_t i : plan.admitted) live_[i]->slot = 0;
    StepBuilder builder(batch_);  // checks its own capacities
    for (const PlannedRows& rows : plan.rows) {
      Sequence& sequence = *live_[rows.sequence];
      ASSERT_TRUE(pages_.Allocate(rows.new_pages, sequence.pages));
      builder.Add(sequence, rows.num_rows);
      for (int32_t p = sequence.num_computed;
           p < sequence.num_computed + rows.num_rows; ++p) {
        const models::PageId page = sequence.pages[p / models::kPageTokens];
        ASSERT_EQ(pages_.refs(page), 1) << "a shared page is written";
      }
    }
  }

  void Apply(const Plan& plan) {
    for (const PlannedRows& rows : plan.rows) {
      Sequence& sequence = *live_[rows.sequence];
      sequence.num_computed += rows.num_rows;
      sequence.num_scored =
          std::max(sequence.num_scored,
                   std::min(sequence.num_computed, sequence.num_prompt - 1));
      if (sequence.num_computed < sequence.num_tokens()) continue;
      sequence.tokens.push_back(0);
      if (sequence.num_answer() == sequence.max_answer) sequence.slot = -2;
    }
    std::erase_if(live_, [&](auto& sequence) {
      if (sequence->slot != -2) return false;
      pages_.Release(sequence->pages);
      return true;
    });
  }

  void EndAllRunning() {
    std::erase_if(live_, [&](auto& sequence) {
      if (!sequence->running()) return false;
      pages_.Release(sequence->pages);
      return true;
    });
  }

  void CheckPages() {
    std::vector<const std::vector<models::PageId>*> owners;
    for (const auto& sequence : live_) {
      if (!sequence->running()) {
        ASSERT_TRUE(sequence->pages.empty()) << "a waiting one holds pages";
      }
      owners.push_back(&sequence->pages);
    }
    const Status audit = pages_.Audit(owners);
    ASSERT_TRUE(audit.ok()) << audit.ToString();
  }

  std::mt19937 random_;
  const PolicyLimits limits_;
  PageManager pages_;
  models::StepBatch batch_;
  int32_t arrivals_left_ = 0;
  int32_t fault_every_ = 0;
  int32_t cancel_every_ = 0;

  std::vector<std::unique_ptr<Sequence>> live_;  // in the policy's order
  int64_t num_arrived_ = 0;
  int64_t work_ = 0;  // tokens that arrived, answers included
  int64_t steps_ = 0;
  int64_t preemptions_ = 0;
};

TEST(PolicySim, InvariantsHoldAtEveryStepOfManyWorlds) {
  int64_t preemptions = 0;
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    World world(seed);
    world.Run();
    if (HasFailure()) return;
    preemptions += world.preemptions();
  }
  EXPECT_GT(preemptions, 100) << "the worlds were meant to run out of pages";
}

}  // namespace
}  // namespace millrace::scheduler
