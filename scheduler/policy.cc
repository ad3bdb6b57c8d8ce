// The plan of one step. Pages for all known tokens are taken when a sequence is
// admitted, not chunk by chunk: a prompt once begun never runs out of pages
// half way, and only decodes can cause a preemption.
#include "scheduler/policy.h"

#include <algorithm>
#include <unordered_map>

#include "config/base/status.h"
#include "scheduler/page_manager.h"

namespace millrace::scheduler {
namespace {

// An admission leaves a page for each running sequence that will want one
// within so many tokens; otherwise the newcomer would be the next victim and
// its prompt be computed for nothing.
constexpr int32_t kLookaheadTokens = 16;

// Of each group, if any.
int32_t PagesWantedSoon(const SequenceView& view, int32_t num_pages) {
  const bool wants = PagesFor(view.num_tokens + kLookaheadTokens) > num_pages;
  return wants ? view.num_tables : 0;
}

// That a running sequence lacks for its first `num_tokens` tokens. It may hold
// more than it needs, from draft tokens that were rejected.
int32_t LackingPages(const SequenceView& view, int32_t num_tokens) {
  const int32_t needed = PagesFor(num_tokens);
  int32_t lacking = std::max(needed - view.num_pages, 0);
  for (const PageTable& table : view.more_tables) {
    lacking += std::max(needed - table.size(), 0);
  }
  return lacking;
}

int32_t ShortestTable(const SequenceView& view) {
  int32_t size = view.num_pages;
  for (const PageTable& table : view.more_tables) {
    size = std::min(size, table.size());
  }
  return size;
}

class Planner {
 public:
  Planner(std::span<const SequenceView> views, int32_t available_pages,
          const PolicyLimits& limits)
      : views_(views),
        limits_(limits),
        runs_(views.size()),
        pages_left_(available_pages),
        tokens_left_(limits.max_tokens),
        samples_left_(limits.max_samples) {
    for (size_t i = 0; i < views.size(); ++i) runs_[i] = views[i].running;
    num_running_ = static_cast<int32_t>(std::ranges::count(runs_, true));
    CHECK(num_running_ <= limits.max_seqs, "more sequences run than may");
  }

  Plan Make() {
    PlanDecodes();
    if (!plan_.rows.empty()) PlanDrafts();
    if (!plan_.rows.empty() || limits_.several_tenants) {
      // Decodes leave a prompt one row at least: it runs or will run, so that
      // with it they are max_seqs together at most.
      tokens_left_ =
          std::max(std::min(tokens_left_, limits_.max_prompt_rows), 1);
    }
    // After a preemption pages are short: newcomers would take what was freed.
    const bool admits = plan_.preempted.empty() && !PromptsLackPages();
    if (admits) PlanOvertaking();
    PlanPrompts();
    if (admits) PlanAdmissions();
    const bool held = std::ranges::any_of(views_, &SequenceView::held);
    while (plan_.rows.empty() && waits_for_page_ && num_running_ > 1 && !held) {
      PreemptLast();
      PlanPrompts();
    }
    return std::move(plan_);
  }

 private:
  int32_t size() const { return static_cast<int32_t>(views_.size()); }
  static int32_t Lacking(const SequenceView& view) {
    return view.num_tokens - view.num_computed;
  }

  void PlanDecodes() {
    for (int32_t i = 0; i < size(); ++i) {
      if (samples_left_ == 0) return;
      if (!runs_[i] || views_[i].held || Lacking(views_[i]) != 1) continue;
      const int32_t new_pages = LackingPages(views_[i], views_[i].num_tokens);
      while (new_pages > pages_left_ && runs_[i]) PreemptLast();
      if (runs_[i]) AddRows(i, 1, new_pages);
    }
  }

  // Draft tokens take what is there and nothing from anybody: no page beyond
  // those that other sequences will want soon, let alone a preemption, and not
  // the one row and sample that let prompts go on.
  void PlanDrafts() {
    int32_t kept_back = 0;
    bool prompts = false;
    for (int32_t i = 0; i < size(); ++i) {
      if (runs_[i])
        kept_back += PagesWantedSoon(views_[i], views_[i].num_pages);
      prompts = prompts || !runs_[i] || Lacking(views_[i]) > 1;
    }
    const int32_t kept_rows = prompts ? 1 : 0;
    for (PlannedRows& rows : plan_.rows) {
      const SequenceView& view = views_[rows.sequence];
      const int32_t held =
          std::max(ShortestTable(view), PagesFor(view.num_tokens));
      const int32_t spare =
          std::max(pages_left_ - kept_back, 0) / view.num_tables;
      const int32_t room =
          (held + spare) * models::kPageTokens - view.num_tokens;
      const int32_t num_draft =
          std::min({view.num_draft, tokens_left_ - kept_rows,
                    samples_left_ - kept_rows, room});
      if (num_draft <= 0) continue;
      const int32_t new_pages =
          LackingPages(view, view.num_tokens + num_draft) - rows.new_pages;
      rows.num_draft = num_draft;
      rows.num_rows += num_draft;
      rows.new_pages += new_pages;
      tokens_left_ -= num_draft;
      samples_left_ -= num_draft;
      pages_left_ -= new_pages;
    }
  }

  bool RunsPrompt(int32_t i) const {
    const SequenceView& view = views_[i];
    return view.running && runs_[i] && !view.held && Lacking(view) > 1;
  }

  bool PromptsLackPages() const {
    for (int32_t i = 0; i < size(); ++i) {
      const SequenceView& view = views_[i];
      if (RunsPrompt(i) && LackingPages(view, view.num_computed + 1) > 0) {
        return true;
      }
    }
    return false;
  }

  void PlanPrompts() {
    waits_for_page_ = false;
    for (int32_t i = 0; i < size() && tokens_left_ > 0; ++i) {
      if (!RunsPrompt(i)) continue;
      const SequenceView& view = views_[i];
      const int32_t chunk = Chunk(view);
      int32_t end = view.num_computed + chunk;
      while (end > view.num_computed && LackingPages(view, end) > pages_left_) {
        end = (PagesFor(end) - 1) * models::kPageTokens;
      }
      const int32_t num_rows = end - view.num_computed;
      if (num_rows > 0) {
        AddRows(i, num_rows, LackingPages(view, end));
      } else {
        waits_for_page_ = waits_for_page_ || chunk > 0;
      }
    }
  }

  void PlanAdmissions() {
    for (int32_t i = 0; i < size(); ++i) {
      if (!runs_[i] && !TryAdmit(i)) return;
    }
  }

  // Waiting sequences before the first running prompt, of another tenant.
  void PlanOvertaking() {
    int32_t first = 0;
    while (first < size() && !(views_[first].running && runs_[first] &&
                               Lacking(views_[first]) > 1)) {
      ++first;
    }
    if (first == size()) return;
    for (int32_t i = 0; i < first; ++i) {
      if (runs_[i] || views_[i].tenant == views_[first].tenant) continue;
      if (!TryAdmit(i)) return;
    }
  }

  // Admits a waiting sequence, or leaves it out for a reason of its own. False
  // when it does not fit, which ends the admission.
  bool TryAdmit(int32_t i) {
    const SequenceView& view = views_[i];
    if (view.waits_for >= 0 && runs_[view.waits_for]) return true;
    if (view.fetching || view.held) return true;
    if (num_running_ == limits_.max_seqs) return false;
    if (!view.tenant_alone &&
        RunningOf(view.tenant) >= MostOfTenant(limits_.max_seqs)) {
      return true;
    }
    const int32_t new_pages =
        view.num_at_start.value_or(PagesFor(view.num_tokens) - view.num_pages);
    const int32_t taken = new_pages + view.num_revived;
    if (taken + KeptBack() > pages_left_) return false;
    const int32_t num_rows = Chunk(view);
    if (num_rows == 0) return false;
    plan_.admitted.push_back(i);
    runs_[i] = true;
    ++num_running_;
    pages_left_ -= view.num_revived;
    AddRows(i, num_rows, new_pages);
    return true;
  }

  // Pages that running and admitted sequences will want soon.
  int32_t KeptBack() {
    if (kept_back_ < 0) {
      kept_back_ = 0;
      for (const SequenceView& view : views_) {
        if (view.running) kept_back_ += PagesWantedSoon(view, view.num_pages);
      }
    }
    for (; num_kept_for_ < plan_.admitted.size(); ++num_kept_for_) {
      const SequenceView& view = views_[plan_.admitted[num_kept_for_]];
      kept_back_ += PagesWantedSoon(view, PagesFor(view.num_tokens));
    }
    return kept_back_;
  }

  int32_t RunningOf(uint32_t tenant) const {
    int32_t num = 0;
    for (int32_t i = 0; i < size(); ++i) {
      num += runs_[i] && views_[i].tenant == tenant;
    }
    return num;
  }

  // The last running sequence has no rows in this plan yet: decodes are planned
  // in order and it stands at or after the one that needs a page.
  void PreemptLast() {
    int32_t last = size() - 1;
    while (!runs_[last]) --last;
    CountHolders();
    runs_[last] = false;
    plan_.preempted.push_back(last);
    pages_left_ += views_[last].num_pages - views_[last].num_given_back -
                   static_cast<int32_t>(views_[last].shared.size());
    for (const PageTable& table : views_[last].more_tables) {
      pages_left_ += table.size();
    }
    for (const models::PageId page : views_[last].shared) {
      if (--holders_[page] == 0) ++pages_left_;
    }
    --num_running_;
  }

  void CountHolders() {
    if (!plan_.preempted.empty()) return;
    for (const SequenceView& view : views_) {
      if (!view.running) continue;
      for (const models::PageId page : view.shared) ++holders_[page];
    }
  }

  // Rows through the head that `num_rows` more rows would need: the scored ones
  // and the last of all, which samples.
  static int32_t Samples(const SequenceView& view, int32_t num_rows) {
    const int32_t end = view.num_computed + num_rows;
    const int32_t scored = std::min(end, view.score_end) -
                           std::max(view.num_computed, view.score_begin);
    return std::max(scored, 0) + (end == view.num_tokens ? 1 : 0);
  }

  // The longest chunk that the step has tokens and samples for.
  int32_t Chunk(const SequenceView& view) const {
    int32_t num_rows = std::min(Lacking(view), tokens_left_);
    while (num_rows > 0) {
      const int32_t excess = Samples(view, num_rows) - samples_left_;
      if (excess <= 0) break;
      // Giving up a row gives back one sample at most.
      num_rows -= excess;
    }
    return std::max(num_rows, 0);
  }

  void AddRows(int32_t i, int32_t num_rows, int32_t new_pages) {
    tokens_left_ -= num_rows;
    samples_left_ -= Samples(views_[i], num_rows);
    pages_left_ -= new_pages;
    plan_.rows.push_back(
        {.sequence = i, .num_rows = num_rows, .new_pages = new_pages});
  }

  const std::span<const SequenceView> views_;
  const PolicyLimits limits_;
  Plan plan_;
  std::vector<bool> runs_;  // once the plan is carried out
  // Of shared pages, among those that run; filled by the first preemption.
  std::unordered_map<models::PageId, int32_t> holders_;
  int32_t num_running_ = 0;
  bool waits_for_page_ = false;  // a prompt gets no rows for want of a page
  int32_t kept_back_ = -1;       // see KeptBack; -1: not counted yet
  size_t num_kept_for_ = 0;      // of the admitted, those counted in it
  int32_t pages_left_;
  int32_t tokens_left_;  // below 0 while decodes exceed the budget
  int32_t samples_left_;
};

}  // namespace

SequenceView View(const Sequence& sequence) {
  SequenceView view;
  view.running = sequence.running();
  view.tenant = sequence.tenant;
  view.tenant_alone = sequence.tenant_alone;
  view.num_tokens = sequence.num_to_run();
  view.num_computed = sequence.num_launched();
  view.num_pages = sequence.tables.front().size();
  view.num_tables = static_cast<int32_t>(sequence.tables.size());
  view.more_tables = std::span(sequence.tables).subspan(1);
  for (const PageTable& table : sequence.tables) {
    view.num_given_back += table.num_given_back;
  }
  view.num_draft = static_cast<int32_t>(sequence.draft.size());
  if (sequence.score_prompt) {
    view.score_begin = sequence.num_scored;
    view.score_end = sequence.num_prompt - 1;
  }
  return view;
}

int32_t MostOfTenant(int32_t all) {
  return std::max(all - std::max(all / 8, 1), 1);
}

Plan MakePlan(std::span<const SequenceView> sequences, int32_t available_pages,
              const PolicyLimits& limits) {
  return Planner(sequences, available_pages, limits).Make();
}

}  // namespace millrace::scheduler
