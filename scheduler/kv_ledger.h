// Page tables of the KV cache: which pages each sequence holds, what a waiting
// one would find in the prefix cache when it starts, and the page part of
// carrying a plan out. Between two steps:
//
//   const auto views = ledger.Views(sequences, limits);
//   const Plan plan = MakePlan(views, ledger.pages().available(), limits);
//   for (i : plan.preempted) ledger.GiveBack(*sequences[i]);
//   ledger.Admit(plan, sequences, builder);     // before any Grow
//   for (rows : plan.rows) ledger.Grow(*sequences[rows.sequence], ...);
//   ... the step runs ...
//   ledger.Advance(sequence, num_computed);     // for each with rows
//
// Where a sequence starts. Nothing that is computed already is computed again,
// but for the last known token, which must sample, and rows whose
// log-probabilities are wanted:
//   fork     a sibling (same request, n > 1) has computed the prompt: its full
//            pages are shared, a partial last one is copied
//   prefix   the longest chain of cached or used pages with the same tokens
// A sequence whose next page is being computed by a running one waits for it.
//
// Where a token's keys and values depend on whether it was in the prompt or was
// generated, the two are different tokens to the prefix cache: a chain is found
// only by a sequence with the same roles. So a preempted sequence finds its own
// pages, and a prompt that holds an earlier completion computes that again.
//
// With an adapter a token has other keys and values than without: its number is
// part of the ids that the prefix cache compares, so that chains of different
// adapters never meet.
//
// Layers that see a window of the last keys only need no pages before it. In a
// page group of such layers (models/llm/page_groups.h) a sequence gives back
// pages as soon as they lie before the window of its next row; their places in
// its table are empty. When it starts it takes pages for the window and a step,
// or for its prompt where that is less, and while the prompt is computed as
// many again as it gives back: no other can take them in between. Only where
// the page given back is another's too, there may be none left, and it waits.
// In the other groups it takes the pages for its whole prompt when it starts.
// A sibling whose start lies before the window computes the prompt anew.
//
// A prefix is found where all groups have what the next row sees: the first
// group all pages, one with a window the last of them.
//
// With a store (models/llm/page_store.h) computed pages go to the store,
// and stored pages are put into the pool as if a sequence had left them there.
// Sequences with adapters stay out of it: the number of an adapter is this
// process's own.
//
// Plain and deterministic; the simulator runs it against an oracle. Engine
// thread only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "models/llm/page_store.h"
#include "models/llm/step.h"
#include "scheduler/page_manager.h"
#include "scheduler/policy.h"
#include "scheduler/sequence.h"
#include "scheduler/step_builder.h"

namespace millrace::scheduler {

struct LedgerOptions {
  int32_t num_pages = 0;
  bool prefix_caching = true;
  bool separate_roles = false;  // keys and values depend on a token's role
  // Of each page group, see RunnerInfo.
  std::vector<int32_t> windows = {0};
  // Rows of a sequence's prompt in one step, at most.
  int32_t max_rows = std::numeric_limits<int32_t>::max();
  uint64_t hash_mask = ~uint64_t{0};  // see PageManager
  // Where pages are kept beside the pool, whose keys are made here; null:
  // nowhere. Not with windows.
  const models::PageStore* store = nullptr;
};

// Has pages fetched that a waiting sequence needs and the pool does not have.
class PageFetcher {
 public:
  virtual ~PageFetcher() = default;
  // The sequence, which waits, finds `num_found` pages computed and could use
  // `num_wanted`. True: more are on their way, and it waits for them.
  virtual bool Fetches(Sequence& sequence, int32_t num_found,
                       int32_t num_wanted) = 0;
};

// A page that was computed here and may be kept.
struct NewPage {
  models::PageId page;
  uint64_t serial;  // of its contents, see PageManager
  models::PageKey key;
};

class KvLedger {
 public:
  explicit KvLedger(const LedgerOptions& options);

  const PageManager& pages() const { return pages_; }

  // What the policy needs to know, in the order given, which is its own. Only
  // as many waiting sequences are looked up as one step could start.
  std::vector<SequenceView> Views(std::span<Sequence* const> sequences,
                                  const PolicyLimits& limits,
                                  PageFetcher* fetcher = nullptr);

  // Gives the plan's newcomers what they start with: shared pages, copies of
  // partial ones, num_computed. `sequences` as for the last Views.
  void Admit(const Plan& plan, std::span<Sequence* const> sequences,
             StepBuilder& builder);

  // Pages for so many rows behind those launched, and where no window is for
  // all tokens the sequence knows. The plan has counted them.
  void Grow(Sequence& sequence, int32_t num_rows);

  // The first `num_computed` tokens are in the pages for good; those that
  // became full can be found from now on.
  void Advance(Sequence& sequence, int32_t num_computed);

  // The sequence ends or is preempted: it holds nothing and is computed no
  // more. What it leaves may be found again.
  void GiveBack(Sequence& sequence);

  // Keys in the store of the first `num_pages` pages of the sequence, which are
  // full.
  std::span<const models::PageKey> Keys(Sequence& sequence,
                                        int32_t num_pages) const;
  // Pages [first, first + num) of the sequence's tokens, of which `write` puts
  // the i-th into a page of the pool, can be found from now on like those of
  // ended sequences. How many were new: pages that are there by now are left
  // out, as are all where the pool has no room or the page before `first` has
  // gone.
  int32_t Restore(Sequence& sequence, int32_t first, int32_t num,
                  const std::function<void(models::PageId, int32_t i)>& write);
  // Pages that were computed since the last call, in order; with a store only.
  std::vector<NewPage> TakeNewPages() { return std::exchange(new_pages_, {}); }

  // Contents are not to be trusted any more (a device fault).
  void Forget() { pages_.Forget(); }

 private:
  // The sequence's tokens as the prefix cache compares them, and the hashes of
  // its full pages, of all pages after HashPages.
  std::span<const int32_t> CacheIds(Sequence& sequence) const;
  bool Marks(const Sequence& sequence) const {
    return options_.separate_roles || IsSpecial(sequence);
  }
  // Its pages are others than those of the same tokens in other sequences, and
  // what tells them apart ends with the process: the store does not keep them.
  static bool IsSpecial(const Sequence& sequence) {
    return sequence.adapter != 0 || sequence.embeddings != nullptr;
  }
  std::vector<uint64_t>& Hashes(Sequence& sequence) const {
    return Marks(sequence) ? sequence.marked_hashes : sequence.page_hashes;
  }
  const std::vector<uint64_t>& Hashes(const Sequence& sequence) const {
    return Marks(sequence) ? sequence.marked_hashes : sequence.page_hashes;
  }
  // Also those of the plain tokens, which a draft model's pages are found by.
  void HashPages(Sequence& sequence) const {
    pages_.HashPages(sequence.tokens, sequence.page_hashes);
    if (!Marks(sequence)) return;
    pages_.HashPages(CacheIds(sequence), sequence.marked_hashes);
  }

  int32_t num_groups() const {
    return static_cast<int32_t>(options_.windows.size());
  }
  int32_t WindowOf(int32_t group) const {
    return options_.windows[static_cast<size_t>(group)];
  }
  // The first page of a group that a row at this position sees.
  int32_t FirstSeen(int32_t group, int32_t position) const {
    const int32_t window = WindowOf(group);
    if (window == 0) return 0;
    return std::max(position + 1 - window, 0) / models::kPageTokens;
  }
  // Places in the group's table of a sequence with its first `num_computed`
  // tokens computed, for what comes next.
  int32_t Reach(int32_t group, int32_t num_computed, int32_t num_tokens) const;
  bool has_windows() const {
    return std::ranges::any_of(options_.windows,
                               [](int32_t window) { return window > 0; });
  }

  struct Start {
    const Sequence* sibling = nullptr;  // forked from, or null
    // Else shared, of each group; places before its window are empty.
    std::vector<std::vector<models::PageId>> tables = {};
    std::vector<models::PageId> passed = {};  // of the first group, before it
    int32_t num_cached = 0;  // of the shared ones, without an owner
    int32_t num_computed = 0;
    int32_t waits_for = -1;
  };
  // Of a waiting sequence.
  void SetPagesAtStart(SequenceView& view) const;
  // Of the running sequence with this index.
  std::span<const models::PageId> SharedPages(const Sequence& sequence,
                                              size_t index);
  // Pages of a chain behind which a sequence can start: all groups have what
  // its first row sees.
  int32_t Usable(std::span<const models::PageId> chain) const;
  // ... and what it shares then, of the first `num_pages`.
  void ShareChain(std::span<const models::PageId> chain, int32_t num_pages,
                  Start& start) const;
  // A table of so many places, for which pages are available.
  void Extend(PageTable& table, int32_t size);
  // Those that became full can be found from now on.
  void RegisterPages(Sequence& sequence);
  Start FindStart(std::span<Sequence* const> sequences, int32_t i) const;
  // The view that will compute the page after `num_found` for sequence i.
  int32_t WhoComputes(std::span<Sequence* const> sequences, int32_t i,
                      int32_t num_found) const;

  const LedgerOptions options_;
  PageManager pages_;
  std::vector<NewPage> new_pages_;
  std::vector<Start> starts_;  // by index of the last Views
  std::vector<std::vector<models::PageId>> shared_;  // so too; several groups
  // Of the views made so far: those that compute, or are first to compute,
  // pages that others may want.
  std::vector<int32_t> computing_;
};

}  // namespace millrace::scheduler
