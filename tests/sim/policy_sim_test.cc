// Random days in the life of policy and pages, those of a draft model beside
// them: arrivals alone and in fork groups, prompts that begin alike,
// cancellations, faults, preemptions, evictions and steps in every order, with
// every invariant looked at after each plan. No threads and no clock, so a seed
// that fails fails again; it is printed.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "models/llm/page_groups.h"
#include "scheduler/hold_back.h"
#include "scheduler/kv_ledger.h"
#include "scheduler/kv_offload.h"
#include "scheduler/model_drafter.h"
#include "scheduler/policy.h"
#include "scheduler/sequence.h"
#include "scheduler/step_builder.h"
#include "scheduler/step_cost.h"
#include "tests/sim/kv_cells.h"
#include "tests/sim/plan_rules.h"
#include "tests/sim/sim_draft.h"
#include "tests/sim/sim_events.h"
#include "tests/unit/scheduler/fake_store.h"

namespace millrace::scheduler {
namespace {

class World {
 public:
  World(uint32_t seed, Events& events)
      : events_(events),
        random_(seed),
        limits_(RandomLimits()),
        // All hashes collide, some do, none does.
        hash_mask_(std::vector<uint64_t>{0, 3, ~uint64_t{0},
                                         ~uint64_t{0}}[Uniform(0, 3)]),
        separate_roles_(Uniform(0, 1) > 0),
        windows_(RandomWindows()),
        keeps_(windows_ == std::vector<int32_t>{0} && Uniform(0, 3) > 0),
        store_(shelf_, KvCells::page_bytes(), Uniform(1, 8)),
        ledger_({.num_pages = Uniform(1, 24) * num_groups(),
                 .prefix_caching = keeps_ || Uniform(0, 5) > 0,
                 .separate_roles = separate_roles_,
                 .windows = windows_,
                 .max_rows = limits_.max_tokens,
                 .hash_mask = hash_mask_,
                 .store = keeps_ ? &store_ : nullptr}),
        cells_(pages().total()),
        access_(cells_, events_),
        batch_(Capacity()),
        draft_({.max_tokens = std::max(limits_.max_seqs, Uniform(1, 100)),
                .max_seqs = limits_.max_seqs,
                .max_pages_per_seq = Uniform(1, 12),
                .max_samples = limits_.max_seqs},
               Uniform(1, 24)),
        drafter_(draft_, {.vocab_size = Uniform(4, 5),
                          .prefix_caching = Uniform(0, 5) > 0,
                          .hash_mask = hash_mask_}) {
    for (int32_t slot = 0; slot < limits_.max_seqs; ++slot) {
      free_slots_.push_back(slot);
    }
    if (keeps_) {
      offload_ = std::make_unique<KvOffload>(store_, access_, ledger_, cost_,
                                             Counter());
      MutexLock lock(shelf_->mu);
      shelf_->lose_every = Uniform(0, 1) == 0 ? Uniform(2, 20) : 0;
    }
    drafts_ = Uniform(0, 1) == 0;
    num_tenants_ = Uniform(1, 3);
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
    EXPECT_EQ(pages().used(), 0);
    EXPECT_EQ(pages().available(), pages().total());
    EXPECT_EQ(drafter_.pages()->used(), 0);
  }

 private:
  struct Life {
    Sequence sequence;
    uint64_t seed = 0;
  };

  const PageManager& pages() const { return ledger_.pages(); }

  int32_t Uniform(int32_t low, int32_t high) {
    return std::uniform_int_distribution<int32_t>(low, high)(random_);
  }

  // All layers see all, or a window, or some do this and some that.
  std::vector<int32_t> RandomWindows() {
    std::vector<int32_t> windows = {Uniform(0, 2) == 0 ? Uniform(1, 300) : 0};
    const int32_t more = windows[0] > 0 ? 0 : std::max(Uniform(-2, 3), 0);
    for (int32_t i = 0; i < more; ++i) windows.push_back(Uniform(1, 300));
    return windows;
  }
  int32_t num_groups() const { return static_cast<int32_t>(windows_.size()); }

  PolicyLimits RandomLimits() {
    PolicyLimits limits;
    limits.max_seqs = Uniform(1, 12);
    limits.max_tokens = Uniform(0, 1) == 0 ? Uniform(1, 20) : Uniform(20, 400);
    limits.max_samples = Uniform(1, 40);
    if (Uniform(0, 1) == 0) limits.max_prompt_rows = Uniform(1, 50);
    return limits;
  }

  models::StepLimits Capacity() const {
    return {.max_tokens = std::max(limits_.max_tokens, limits_.max_seqs),
            .max_seqs = limits_.max_seqs,
            .max_pages_per_seq = 24,
            .max_samples = limits_.max_samples,
            .page_groups = num_groups()};
  }

  // One of three openings, then its own tokens. Few different ones, so that
  // hashes and pages repeat in every way.
  std::vector<int32_t> RandomPrompt(int32_t num_tokens) {
    std::mt19937 opening(static_cast<uint32_t>(Uniform(1, 3)));
    std::vector<int32_t> prompt(num_tokens);
    const int32_t own = Uniform(0, num_tokens);
    for (int32_t i = 0; i < num_tokens; ++i) {
      prompt[i] = i < own ? static_cast<int32_t>(opening() % 5) : Uniform(0, 4);
    }
    return prompt;
  }

  void Arrive() {
    --arrivals_left_;
    // A sequence that runs alone has room.
    const auto room = static_cast<int32_t>(
        models::LongestSequence(windows_, limits_.max_tokens, pages().total(),
                                24 * models::kPageTokens));
    Sequence sequence;
    sequence.num_prompt = Uniform(1, std::min(room - 1, 500));
    sequence.tokens = RandomPrompt(sequence.num_prompt);
    sequence.max_output = Uniform(1, std::min(room - sequence.num_prompt, 200));
    sequence.score_prompt = Uniform(0, 4) == 0;
    sequence.priority = Uniform(0, 2);
    sequence.tenant = static_cast<uint32_t>(Uniform(0, num_tenants_ - 1));
    sequence.tenant_alone = num_tenants_ == 1;
    const int32_t siblings = Uniform(0, 3) == 0 ? Uniform(2, 5) : 1;
    if (siblings > 1) sequence.fork_group = &fork_groups_.emplace_back();
    for (int32_t i = 0; i < siblings; ++i) {
      auto life = std::make_unique<Life>();
      life->sequence = sequence;
      life->sequence.arrival = num_arrived_++;
      life->seed = static_cast<uint64_t>(Uniform(0, 3));
      work_ += sequence.num_prompt + sequence.max_output;
      const auto place = std::upper_bound(
          live_.begin(), live_.end(), life, [](const auto& a, const auto& b) {
            return a->sequence.Before(b->sequence);
          });
      live_.insert(place, std::move(life));
    }
  }

  void Cancel() {
    if (live_.empty()) return;
    const int32_t i = Uniform(0, static_cast<int32_t>(live_.size()) - 1);
    GiveBack(live_[i]->sequence);
    live_.erase(live_.begin() + i);
  }

  void GiveBack(Sequence& sequence) {
    ledger_.GiveBack(sequence);
    if (!sequence.running()) return;
    drafter_.Release(sequence);
    free_slots_.push_back(sequence.slot);
    sequence.slot = -1;
  }

  static bool Decodes(const Sequence& sequence) {
    return sequence.running() &&
           sequence.num_computed + 1 == sequence.num_tokens();
  }

  // What comes next, as far as the model is concerned, or something like it.
  void Propose(Life& life) {
    Sequence& sequence = life.sequence;
    sequence.draft.clear();
    const int32_t room = sequence.max_output - sequence.num_output() - 1;
    if (!Decodes(sequence) || Uniform(0, 1) == 0 || room < 1) return;
    std::vector<int32_t> tokens = sequence.tokens;
    for (int32_t n = Uniform(1, std::min(room, 70)); n > 0; --n) {
      tokens.push_back(Uniform(0, 9) == 0 ? Uniform(0, 4)
                                          : SimNext(tokens, life.seed));
      sequence.draft.push_back(tokens.back());
    }
  }

  // The draft model drafts for some of those that decode; not all of it is
  // always taken.
  void Draft() {
    std::deque<scheduler::Draft> drafts;
    std::vector<DraftRequest> requests;
    std::vector<Life*> lives;
    for (const auto& life : live_) {
      Sequence& sequence = life->sequence;
      sequence.draft.clear();
      const int32_t room = sequence.max_output - sequence.num_output() - 1;
      if (!Decodes(sequence) || Uniform(0, 3) == 0 || room < 1) continue;
      requests.push_back(
          {&sequence, Uniform(0, std::min(room, 8)), &drafts.emplace_back()});
      lives.push_back(life.get());
    }
    drafter_.Propose(requests);
    for (size_t i = 0; i < requests.size(); ++i) {
      Sequence& sequence = lives[i]->sequence;
      const std::vector<int32_t>& proposed = requests[i].draft->tokens;
      ASSERT_LE(static_cast<int32_t>(proposed.size()), requests[i].max_tokens);
      events_.proposed_drafts += static_cast<int64_t>(proposed.size());
      events_.drafts_held_back +=
          requests[i].max_tokens > 0 && proposed.empty();
      if (lives[i]->seed == 0) CheckSure(sequence, proposed);
      const auto taken = static_cast<int32_t>(proposed.size());
      sequence.draft.assign(proposed.begin(),
                            proposed.begin() + Uniform(taken / 2, taken));
    }
  }

  // Wrong only if the draft model's pages hold something else than the tokens.
  void CheckSure(const Sequence& sequence,
                 const std::vector<int32_t>& proposed) {
    std::vector<int32_t> tokens = sequence.tokens;
    for (const int32_t id : proposed) {
      ASSERT_EQ(id, SimNext(tokens, 0)) << "its pages hold foreign tokens";
      tokens.push_back(id);
      ++events_.sure_drafts;
    }
  }

  void Step() {
    sequences_.clear();
    for (const auto& life : live_) {
      sequences_.push_back(&life->sequence);
      if (!drafts_) Propose(*life);
    }
    if (drafts_) Draft();
    if (keeps_) {
      MutexLock lock(shelf_->mu);
      shelf_->closed = Uniform(0, 2) > 0;  // what is fetched takes some steps
    }
    if (keeps_) offload_->Land(sequences_);
    auto views = ledger_.Views(sequences_, limits_, offload_.get());
    const Plan plan =
        fair_steps_.Make(views, [&](std::span<const SequenceView> seen) {
          PolicyLimits limits = limits_;
          limits.several_tenants = num_tenants_ > 1;
          return MakePlan(seen, pages().available(), limits);
        });
    events_.held += std::ranges::count_if(views, &SequenceView::held);
    for (const SequenceView& view : views) {
      events_.lacking_prompts += view.running && LacksNextPage(view) &&
                                 view.num_tokens - view.num_computed > 1;
    }
    events_.waits += CheckPlan(views, plan, limits_);
    if (testing::Test::HasFailure()) return;
    if (plan.rows.empty()) {
      ++events_.all_fetch;
      return;
    }
    ++steps_;
    CarryOut(plan);
    CheckPages();
    if (testing::Test::HasFailure()) return;
    if (fault_every_ > 0 && Uniform(1, fault_every_) == 1) {
      EndAllRunning();
    } else {
      Apply(plan);
    }
    if (keeps_) offload_->Save(Uniform(0, 8));
    CheckPages();
    // Generous: every token computed, on average, once more for nothing.
    ASSERT_LE(steps_, 100 + 2 * work_) << "somebody starves";
  }

  void CarryOut(const Plan& plan) {
    events_.preemptions += static_cast<int64_t>(plan.preempted.size());
    for (const int32_t i : plan.preempted) {
      GiveBack(*sequences_[i]);
      KvOffload::Forget(*sequences_[i]);
    }
    const bool tight = pages().free() == 0 && pages().cached() > 0;
    StepBuilder builder(batch_);  // checks its own capacities
    ledger_.Admit(plan, sequences_, builder);
    events_.forks += batch_.num_copies;
    for (const int32_t i : plan.admitted) {
      sequences_[i]->slot = free_slots_.back();
      free_slots_.pop_back();
      events_.found_tokens += sequences_[i]->num_computed;
      if (num_groups() == 1) continue;
      events_.group_found_tokens += sequences_[i]->num_computed;
      for (const PageTable& table : sequences_[i]->tables) {
        events_.found_before_window += table.num_given_back;
      }
    }
    if (num_groups() > 1) events_.group_forks += batch_.num_copies;
    int32_t seq = 0;
    const int32_t cached_before = pages().cached();
    for (const PlannedRows& rows : plan.rows) {
      Sequence& sequence = *sequences_[rows.sequence];
      ledger_.Grow(sequence, rows.num_rows);
      ASSERT_EQ(builder.Add(sequence, rows.num_rows), seq++);
      for (int32_t p = sequence.num_computed;
           p < sequence.num_computed + rows.num_rows; ++p) {
        for (const PageTable& table : sequence.tables) {
          const models::PageId page = table.pages[p / models::kPageTokens];
          ASSERT_EQ(pages().refs(page), 1) << "a shared page is written";
        }
      }
    }
    events_.evicting_steps += tight && pages().cached() < cached_before;
    cells_.Write(batch_);
    for (int32_t i = 0; i < seq; ++i) {
      const Sequence& sequence = *sequences_[plan.rows[i].sequence];
      for (int32_t group = 0; group < num_groups(); ++group) {
        CheckSeen(sequence, i, group);
      }
    }
  }

  // What the rows of a sequence, the i-th of the batch, see in a page group.
  void CheckSeen(const Sequence& sequence, int32_t i, int32_t group) {
    const int32_t first =
        FirstSeen(group, batch_.positions()[batch_.q_start()[i]]);
    const auto seen = cells_.Read(batch_, i, group, first);
    std::vector<int32_t> tokens = sequence.tokens;
    tokens.insert(tokens.end(), sequence.draft.begin(), sequence.draft.end());
    for (int32_t p = first; p < static_cast<int32_t>(seen.size()); ++p) {
      ASSERT_EQ(seen[p], tokens[p])
          << "sequence " << i << " sees a foreign token in group " << group;
      if (!separate_roles_) continue;
      ASSERT_EQ(cells_.IsGenerated(batch_, i, group, p),
                p >= sequence.num_prompt)
          << "sequence " << i << " sees a token of another role";
    }
  }

  // The first position that a row sees in a page group.
  int32_t FirstSeen(int32_t group, int32_t position) const {
    const int32_t window = windows_[group];
    return window == 0 ? 0 : std::max(0, position + 1 - window);
  }

  // No more than the window and a step, or the known tokens behind it, need.
  void CheckHeld(const Sequence& sequence) {
    const int32_t computed = sequence.num_computed;
    const bool decodes = sequence.num_tokens() - computed == 1;
    for (int32_t group = 0; group < num_groups(); ++group) {
      const PageTable& table = sequence.tables[group];
      events_.given_back += table.num_given_back;
      const int32_t held = table.size() - table.num_given_back;
      const int64_t known =
          PagesFor(sequence.num_tokens() + (decodes ? 70 : 0)) -
          FirstSeen(group, computed) / models::kPageTokens;
      const int64_t most = models::MostPages(
          windows_[group], limits_.max_tokens, sequence.num_tokens());
      ASSERT_LE(held, decodes ? known : std::min(known, most));
    }
  }

  void Apply(const Plan& plan) {
    for (const PlannedRows& rows : plan.rows) {
      Sequence& sequence = *sequences_[rows.sequence];
      const uint64_t seed = live_[rows.sequence]->seed;
      int32_t computed = sequence.num_computed + rows.num_rows - rows.num_draft;
      sequence.num_scored = std::max(
          sequence.num_scored, std::min(computed, sequence.num_prompt - 1));
      if (computed == sequence.num_tokens()) {
        sequence.tokens.push_back(SimNext(sequence.tokens, seed));
        for (int32_t k = 0; k < rows.num_draft; ++k) {
          if (sequence.draft[k] != sequence.tokens.back()) break;
          ++computed;
          ++events_.accepted_drafts;
          sequence.tokens.push_back(SimNext(sequence.tokens, seed));
        }
      }
      ledger_.Advance(sequence, computed);
      CheckHeld(sequence);
    }
    EndWhere([](const Sequence& sequence) {
      return sequence.num_output() == sequence.max_output;
    });
  }

  void EndAllRunning() {
    EndWhere([](const Sequence& sequence) { return sequence.running(); });
    ledger_.Forget();
    cells_.Spoil();
  }

  template <typename Ends>
  void EndWhere(Ends ends) {
    std::erase_if(live_, [&](auto& life) {
      if (!ends(life->sequence)) return false;
      GiveBack(life->sequence);
      return true;
    });
  }

  void CheckPages() {
    std::vector<const std::vector<models::PageId>*> owners;
    for (const auto& life : live_) {
      const Sequence& sequence = life->sequence;
      if (!sequence.running()) {
        ASSERT_TRUE(std::ranges::all_of(
            sequence.tables,
            [](const PageTable& table) { return table.pages.empty(); }))
            << "a waiting one holds pages";
      }
      for (const PageTable& table : sequence.tables) {
        owners.push_back(&table.pages);
      }
    }
    const Status audit = pages().Audit(owners);
    ASSERT_TRUE(audit.ok()) << audit.ToString();
    const Status draft_audit = drafter_.ledger().Audit();
    ASSERT_TRUE(draft_audit.ok()) << "draft: " << draft_audit.ToString();
  }

  Events& events_;
  std::mt19937 random_;
  const PolicyLimits limits_;
  const uint64_t hash_mask_;
  const bool separate_roles_;
  const std::vector<int32_t> windows_;
  const bool keeps_;  // pages outside the pool
  const std::shared_ptr<FakeShelf> shelf_ = std::make_shared<FakeShelf>();
  FakeStore store_;
  KvLedger ledger_;
  KvCells cells_;
  CellAccess access_;
  const StepCost cost_;
  std::unique_ptr<KvOffload> offload_;  // or null
  models::StepBatch batch_;
  SimDraft draft_;
  ModelDrafter drafter_;
  bool drafts_ = false;  // draft tokens are the draft model's
  int32_t num_tenants_ = 1;
  FairSteps fair_steps_;
  std::vector<int32_t> free_slots_;
  int32_t arrivals_left_ = 0;
  int32_t fault_every_ = 0;
  int32_t cancel_every_ = 0;

  std::deque<char> fork_groups_;             // addresses
  std::vector<std::unique_ptr<Life>> live_;  // in the policy's order
  std::vector<Sequence*> sequences_;         // theirs, during a step
  int64_t num_arrived_ = 0;
  int64_t work_ = 0;  // tokens that arrived, answers included
  int64_t steps_ = 0;
};

TEST(PolicySim, InvariantsHoldAtEveryStepOfManyWorlds) {
  Events events;
  for (uint32_t seed = 1; seed <= 250; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    World world(seed, events);
    world.Run();
    if (HasFailure()) return;
  }
  // The worlds were meant to run out of pages, to share and to fork.
  EXPECT_GT(events.preemptions, 100);
  EXPECT_GT(events.forks, 100);
  EXPECT_GT(events.given_back, 1000);
  EXPECT_GT(events.group_forks, 100);
  EXPECT_GT(events.group_found_tokens, 10'000);
  EXPECT_GT(events.found_before_window, 100);
  EXPECT_GT(events.lacking_prompts, 10);
  EXPECT_GT(events.found_tokens, 10'000);
  EXPECT_GT(events.evicting_steps, 100);
  EXPECT_GT(events.waits, 100);
  EXPECT_GT(events.held, 1000);
  EXPECT_GT(events.accepted_drafts, 1000);
  EXPECT_GT(events.proposed_drafts, 10'000);
  EXPECT_GT(events.sure_drafts, 1000);
  EXPECT_GT(events.drafts_held_back, 100);
  EXPECT_GT(events.saved_pages, 1000);
  EXPECT_GT(events.restored_pages, 100);
  EXPECT_GT(events.all_fetch, 100);
}

}  // namespace
}  // namespace millrace::scheduler
