// What every plan of the policy keeps, whatever it was asked: rows name each
// sequence once, nobody overtakes, victims stand behind all that go on, budgets
// hold, a draft token takes nothing from anybody.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "scheduler/page_manager.h"
#include "scheduler/policy.h"

namespace millrace::scheduler {

inline void CheckShape(const std::vector<SequenceView>& views,
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
  const bool all_fetch = std::ranges::all_of(
      views, [](const SequenceView& view) { return view.fetching; });
  ASSERT_TRUE(!plan.rows.empty() || all_fetch) << "a step without progress";
}

inline void CheckDrafts(const std::vector<SequenceView>& views,
                        const Plan& plan, const PolicyLimits& limits) {
  int32_t prompt_rows = 0;
  bool decodes = false;
  for (const PlannedRows& rows : plan.rows) {
    const SequenceView& view = views[rows.sequence];
    const bool decode =
        view.running && view.num_tokens - view.num_computed == 1;
    decodes = decodes || decode;
    prompt_rows += decode ? 0 : rows.num_rows;
    ASSERT_GE(rows.num_draft, 0);
    ASSERT_LE(rows.num_draft, decode ? view.num_draft : 0);
    ASSERT_TRUE(!decode || rows.num_rows == 1 + rows.num_draft);
    // A draft token takes no page from anybody.
    if (decode && !plan.preempted.empty()) {
      ASSERT_LE(PagesFor(view.num_tokens + rows.num_draft),
                view.num_pages + rows.new_pages);
    }
  }
  if (decodes) {
    ASSERT_LE(prompt_rows, limits.max_prompt_rows);
  }
}

inline int32_t CountSamples(const SequenceView& view, int32_t num_rows) {
  int32_t samples = 0;
  for (int32_t row = view.num_computed; row < view.num_computed + num_rows;
       ++row) {
    samples += (row >= view.score_begin && row < view.score_end) ||
               row + 1 >= view.num_tokens;
  }
  return samples;
}

// Counts those that wait for a page that is being computed.
inline void CheckOrder(const std::vector<SequenceView>& views, const Plan& plan,
                       const PolicyLimits& limits, int64_t& waits) {
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
  for (const int32_t i : plan.admitted) runs[i] = true;
  // Within a tenant sequences are admitted in order, but for those whose next
  // page is being computed.
  std::map<uint32_t, int32_t> num_waiting, num_admitted;
  for (const int32_t i : plan.admitted) ++num_admitted[views[i].tenant];
  for (int32_t i = 0; i < n; ++i) {
    if (views[i].running) continue;
    const bool admitted = std::ranges::count(plan.admitted, i) > 0;
    if (views[i].fetching) {
      ASSERT_FALSE(admitted) << "its pages are on their way";
      continue;
    }
    if (!admitted && views[i].waits_for >= 0 && runs[views[i].waits_for]) {
      ++waits;
      continue;
    }
    if (views[i].held) {
      ASSERT_FALSE(admitted) << "it is held";
      continue;
    }
    const uint32_t tenant = views[i].tenant;
    ASSERT_EQ(admitted, num_waiting[tenant] < num_admitted[tenant]);
    ++num_waiting[tenant];
  }
  ASSERT_LE(std::ranges::count(runs, true), limits.max_seqs);

  // Decodes before prompts before newcomers, but for newcomers that stand
  // before the prompts of another tenant; budgets kept.
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
    ASSERT_FALSE(view.held);
    if (kind == 2 && its_kind == 1) {
      ASSERT_LT(plan.admitted.front(), rows.sequence);
      continue;
    }
    ASSERT_LE(kind, its_kind) << "a decode stands behind a prompt";
    kind = its_kind;
  }
  ASSERT_LE(tokens, std::max(limits.max_tokens, limits.max_seqs));
  ASSERT_LE(samples, limits.max_samples);
  for (int32_t i = 0; i < n; ++i) {
    if (!runs[i] || planned[i] || views[i].held) continue;
    if (views[i].num_tokens - views[i].num_computed == 1) {
      ASSERT_EQ(samples, limits.max_samples)
          << "decode " << i << " is left though there is room";
    }
  }
}

inline bool LacksNextPage(const SequenceView& view) {
  const int32_t needed = PagesFor(view.num_computed + 1);
  return needed > view.num_pages ||
         std::ranges::any_of(view.more_tables, [&](const PageTable& table) {
           return needed > table.size();
         });
}

// Only decodes exceed the token budget, prompts beside them by one row in all.
inline void CheckBudget(const std::vector<SequenceView>& views,
                        const Plan& plan, const PolicyLimits& limits) {
  int32_t decodes = 0;
  int32_t drafts = 0;
  int32_t prompt_rows = 0;
  for (const PlannedRows& rows : plan.rows) {
    const SequenceView& view = views[rows.sequence];
    const bool decode =
        view.running && view.num_tokens - view.num_computed == 1;
    decodes += decode ? 1 : 0;
    drafts += rows.num_draft;
    prompt_rows += decode ? 0 : rows.num_rows;
  }
  ASSERT_LE(drafts, std::max(limits.max_tokens - decodes, 0));
  ASSERT_LE(prompt_rows, std::max(limits.max_tokens - decodes - drafts, 1));
  // The first running prompt that has its next page goes on in every step that
  // has a sample for it.
  for (size_t i = 0; i < views.size(); ++i) {
    const SequenceView& view = views[i];
    if (!view.running || view.num_tokens - view.num_computed == 1) continue;
    if (view.held || LacksNextPage(view)) continue;
    if (std::ranges::count(plan.preempted, static_cast<int32_t>(i)) > 0) {
      continue;
    }
    ASSERT_TRUE(prompt_rows > 0 || decodes + drafts >= limits.max_samples)
        << "prompts stand still";
    break;
  }
}

// Others are held back for rows of a prompt alone.
inline void CheckHoldsForPrompts(const std::vector<SequenceView>& views,
                                 const Plan& plan) {
  if (std::ranges::none_of(views, [](const SequenceView& view) {
        return view.held && view.running;
      })) {
    return;
  }
  ASSERT_TRUE(std::ranges::any_of(plan.rows, [&](const PlannedRows& rows) {
    const SequenceView& view = views[rows.sequence];
    return !view.running || view.num_tokens - view.num_computed > 1;
  })) << "decodes are held back for nothing";
}

// All of it; how many waited for a page that was being computed.
inline int64_t CheckPlan(const std::vector<SequenceView>& views,
                         const Plan& plan, const PolicyLimits& limits) {
  int64_t waits = 0;
  CheckShape(views, plan);
  CheckOrder(views, plan, limits, waits);
  CheckDrafts(views, plan, limits);
  CheckBudget(views, plan, limits);
  CheckHoldsForPrompts(views, plan);
  return waits;
}

}  // namespace millrace::scheduler
