// Admit takes all shared pages of all newcomers before it makes the first copy:
// making room for a copy may evict cached pages, and those found for a later
// newcomer must not be among them.
#include "scheduler/kv_ledger.h"

#include <algorithm>
#include <utility>

#include "config/base/status.h"
#include "models/llm/page_groups.h"
#include "models/llm/prompt_embeddings.h"

namespace millrace::scheduler {

using models::kPageTokens;

namespace {

// Tokens at the beginning that need not be computed if another one has: all
// but the last, and none from the first one that is still to be scored.
int32_t MostSkippable(const Sequence& sequence) {
  const int32_t most = sequence.num_tokens() - 1;
  const bool scores = sequence.Scores(sequence.num_scored);
  return scores ? std::min(most, sequence.num_scored) : most;
}

// Set in the id of a generated token. Ids are not negative and vocabularies are
// much smaller.
constexpr int32_t kGeneratedBit = 1 << 30;
// Set in the ids of the first 32 tokens where the adapter's number has a 1. A
// page is found only behind the page before it, so the first one suffices.
constexpr int32_t kAdapterBit = 1 << 29;
static_assert(kPageTokens >= 32, "a full page holds all bits of a number");
// Set where a row of an image stands, beside the image's number. Which row of
// it follows from the tokens before, behind whose pages alone a page is found.
constexpr int32_t kImageBit = 1 << 28;
static_assert(models::kMostImageNumber < kImageBit, "the number has its bits");

int32_t CacheIdAt(const Sequence& sequence, int32_t position) {
  const auto* span = sequence.embeddings == nullptr
                         ? nullptr
                         : sequence.embeddings->SpanAt(position);
  return span == nullptr ? sequence.tokens[static_cast<size_t>(position)]
                         : kImageBit | span->image;
}

}  // namespace

std::span<const int32_t> KvLedger::CacheIds(Sequence& sequence) const {
  if (!Marks(sequence)) return sequence.tokens;
  std::vector<int32_t>& ids = sequence.marked_tokens;
  for (size_t i = ids.size(); i < sequence.tokens.size(); ++i) {
    const bool generated = options_.separate_roles &&
                           static_cast<int32_t>(i) >= sequence.num_prompt;
    const bool adapts = i < 32 && (sequence.adapter >> i & 1u) != 0;
    ids.push_back(CacheIdAt(sequence, static_cast<int32_t>(i)) |
                  (generated ? kGeneratedBit : 0) | (adapts ? kAdapterBit : 0));
  }
  return ids;
}

KvLedger::KvLedger(const LedgerOptions& options)
    : options_(options),
      pages_(options.num_pages, options.hash_mask, WindowOf(0) > 0) {
  CHECK(options.store == nullptr || !has_windows(),
        "pages before a window are not kept");
  CHECK(num_groups() == 1 || WindowOf(0) == 0,
        "of several groups the first sees all");
}

int32_t KvLedger::Reach(int32_t group, int32_t num_computed,
                        int32_t num_tokens) const {
  const int64_t first = FirstSeen(group, num_computed);
  const int64_t most =
      models::MostPages(WindowOf(group), options_.max_rows, num_tokens);
  return static_cast<int32_t>(
      std::min<int64_t>(PagesFor(num_tokens), first + most));
}

std::vector<SequenceView> KvLedger::Views(std::span<Sequence* const> sequences,
                                          const PolicyLimits& limits,
                                          PageFetcher* fetcher) {
  starts_.assign(sequences.size(), Start());
  if (num_groups() > 1) shared_.assign(sequences.size(), {});
  computing_.clear();
  std::vector<SequenceView> views;
  views.reserve(sequences.size());
  int32_t slots_left = limits.max_seqs;
  int32_t tokens_left = limits.max_tokens;
  for (size_t k = 0; k < sequences.size(); ++k) {
    Sequence& sequence = *sequences[k];
    SequenceView& view = views.emplace_back(View(sequence));
    view.num_tables = num_groups();
    if (!sequence.running()) continue;
    --slots_left;
    view.shared = SharedPages(sequence, k);
    // Rows in flight are not computed yet: who needs them waits.
    if (sequence.num_tokens() - sequence.num_computed == 1) continue;
    computing_.push_back(static_cast<int32_t>(k));
  }
  for (size_t k = 0; k < sequences.size(); ++k) {
    Sequence& sequence = *sequences[k];
    if (sequence.running()) continue;
    // The policy stops where slots or tokens of the step end: no look-up then.
    if (slots_left <= 0 || tokens_left <= 0) {
      if (!has_windows()) break;
      SetPagesAtStart(views[k]);
      continue;
    }
    if (options_.prefix_caching) {
      HashPages(sequence);
    }
    const auto i = static_cast<int32_t>(k);
    Start& start = starts_[k];
    start = FindStart(sequences, i);
    SequenceView& view = views[k];
    view.waits_for = start.waits_for;
    view.num_computed = start.num_computed;
    view.num_pages = start.num_computed / kPageTokens;
    view.num_revived = start.num_cached;
    SetPagesAtStart(view);
    if (start.waits_for >= 0) continue;
    view.fetching = fetcher != nullptr && !IsSpecial(sequence) &&
                    fetcher->Fetches(sequence, view.num_pages,
                                     MostSkippable(sequence) / kPageTokens);
    if (view.fetching) continue;
    --slots_left;
    tokens_left -= view.num_tokens - view.num_computed;
    computing_.push_back(i);
  }
  return views;
}

void KvLedger::SetPagesAtStart(SequenceView& view) const {
  if (!has_windows()) return;
  view.num_at_start = 0;
  for (int32_t group = 0; group < num_groups(); ++group) {
    *view.num_at_start +=
        Reach(group, view.num_computed, view.num_tokens) - view.num_pages;
  }
}

// With a window, others may share pages in the middle: where it is that of the
// first group, all are named.
std::span<const models::PageId> KvLedger::SharedPages(const Sequence& sequence,
                                                      size_t index) {
  const PageTable& first = sequence.tables.front();
  const auto held =
      std::span(first.pages).subspan(static_cast<size_t>(first.num_given_back));
  if (WindowOf(0) > 0) return held;
  const auto end = std::ranges::find_if(
      held, [&](models::PageId page) { return pages_.refs(page) == 1; });
  const auto shared = std::span(held.begin(), end);
  if (num_groups() == 1) return shared;
  std::vector<models::PageId>& all = shared_[index];
  all.assign(shared.begin(), shared.end());
  for (const PageTable& table : std::span(sequence.tables).subspan(1)) {
    for (const models::PageId page :
         std::span(table.pages)
             .subspan(static_cast<size_t>(table.num_given_back))) {
      if (pages_.refs(page) > 1) all.push_back(page);
    }
  }
  return all;
}

int32_t KvLedger::Usable(std::span<const models::PageId> chain) const {
  const auto num_pages = static_cast<int32_t>(chain.size());
  if (num_groups() == 1) return num_pages;
  int32_t usable = 0;
  // Pages in a row that a group has, up to this one.
  std::vector<int32_t> runs(static_cast<size_t>(num_groups()), 0);
  for (int32_t end = 1; end <= num_pages; ++end) {
    bool all = true;
    for (int32_t group = 1; group < num_groups(); ++group) {
      int32_t& run = runs[static_cast<size_t>(group)];
      const models::PageId page =
          pages_.Attached(chain[static_cast<size_t>(end - 1)], group);
      run = page == models::kNoPage ? 0 : run + 1;
      all = all && run >= end - FirstSeen(group, end * kPageTokens);
    }
    if (all) usable = end;
  }
  return usable;
}

void KvLedger::ShareChain(std::span<const models::PageId> chain,
                          int32_t num_pages, Start& start) const {
  start.num_computed = num_pages * kPageTokens;
  start.tables.assign(static_cast<size_t>(num_groups()), {});
  for (int32_t group = 0; group < num_groups(); ++group) {
    std::vector<models::PageId>& pages =
        start.tables[static_cast<size_t>(group)];
    const int32_t first = FirstSeen(group, start.num_computed);
    pages.assign(static_cast<size_t>(first), models::kNoPage);
    for (int32_t i = first; i < num_pages; ++i) {
      const models::PageId page = chain[static_cast<size_t>(i)];
      pages.push_back(group == 0 ? page : pages_.Attached(page, group));
      start.num_cached += pages_.refs(pages.back()) == 0;
    }
  }
  const auto passed = static_cast<size_t>(FirstSeen(0, start.num_computed));
  start.passed.assign(chain.begin(), chain.begin() + passed);
}

KvLedger::Start KvLedger::FindStart(std::span<Sequence* const> sequences,
                                    int32_t i) const {
  Sequence& sequence = *sequences[i];
  const int32_t skippable = MostSkippable(sequence);
  Start start;
  if (sequence.fork_group != nullptr) {
    // A sibling has the same prompt.
    const int32_t common = std::min(skippable, sequence.num_prompt);
    for (const Sequence* other : sequences) {
      if (other == &sequence || other->fork_group != sequence.fork_group ||
          !other->running() || other->num_computed < common ||
          common <= start.num_computed) {
        continue;
      }
      bool has_window = true;
      for (int32_t group = 0; group < num_groups(); ++group) {
        has_window = has_window &&
                     other->tables[static_cast<size_t>(group)].num_given_back <=
                         FirstSeen(group, common);
      }
      if (!has_window) continue;
      start.sibling = other;
      start.num_computed = common;
    }
  }
  const std::vector<models::PageId> chain =
      pages_.Find(CacheIds(sequence), Hashes(sequence), skippable / kPageTokens)
          .pages;
  const int32_t num_found = Usable(chain);
  if (num_found * kPageTokens >= start.num_computed) {
    start.sibling = nullptr;
    ShareChain(chain, num_found, start);
  }
  if (start.sibling == nullptr) {
    start.waits_for = WhoComputes(sequences, i, num_found);
  }
  return start;
}

int32_t KvLedger::WhoComputes(std::span<Sequence* const> sequences, int32_t i,
                              int32_t num_found) const {
  const Sequence& sequence = *sequences[i];
  const int32_t skippable = MostSkippable(sequence);
  const auto next = static_cast<size_t>(num_found);
  const int32_t wanted = (num_found + 1) * kPageTokens;
  for (const int32_t j : computing_) {
    const Sequence& other = *sequences[j];
    const int32_t common = std::min(skippable, sequence.num_prompt);
    if (sequence.fork_group != nullptr &&
        other.fork_group == sequence.fork_group &&
        common > num_found * kPageTokens && other.num_computed < common) {
      return j;
    }
    // Equal hashes are as good as certain here: at worst a sequence waits a
    // little for nothing.
    if (options_.prefix_caching && wanted <= skippable &&
        next < Hashes(other).size() &&
        Hashes(other)[next] == Hashes(sequence)[next] &&
        starts_[j].num_computed < wanted && other.num_computed < wanted) {
      return j;
    }
  }
  return -1;
}

void KvLedger::Admit(const Plan& plan, std::span<Sequence* const> sequences,
                     StepBuilder& builder) {
  for (const int32_t i : plan.admitted) {
    Sequence& sequence = *sequences[i];
    const Start& start = starts_[i];
    CHECK(sequence.tables.front().pages.empty(),
          "a waiting sequence holds no pages");
    sequence.num_computed = start.num_computed;
    if (sequence.num_found < 0) sequence.num_found = start.num_computed;
    sequence.tables.assign(static_cast<size_t>(num_groups()), {});
    // Forked, or not looked up.
    if (start.tables.empty()) continue;
    pages_.Touch(start.passed);
    for (int32_t group = 0; group < num_groups(); ++group) {
      const auto g = static_cast<size_t>(group);
      pages_.Share(start.tables[g]);
      sequence.tables[g] = {start.tables[g],
                            FirstSeen(group, start.num_computed)};
    }
    sequence.num_registered = start.num_computed / kPageTokens;
  }
  for (const int32_t i : plan.admitted) {
    Sequence& sequence = *sequences[i];
    const Start& start = starts_[i];
    if (start.sibling == nullptr) continue;
    for (size_t group = 0; group < sequence.tables.size(); ++group) {
      const PageTable& other = start.sibling->tables[group];
      auto forked = pages_.Fork(other.pages, start.num_computed);
      CHECK(forked.has_value(), "the plan gives away only available pages");
      sequence.tables[group] = {std::move(forked->pages), other.num_given_back};
      if (forked->copy) builder.AddCopy(*forked->copy);
    }
    sequence.num_registered = std::min(start.sibling->num_registered,
                                       start.num_computed / kPageTokens);
  }
  for (const int32_t i : plan.admitted) {
    Sequence& sequence = *sequences[i];
    for (int32_t group = 0; group < num_groups(); ++group) {
      if (WindowOf(group) == 0) continue;
      Extend(sequence.tables[static_cast<size_t>(group)],
             Reach(group, sequence.num_computed, sequence.num_tokens()));
    }
  }
}

void KvLedger::Extend(PageTable& table, int32_t size) {
  CHECK(pages_.Allocate(std::max(size - table.size(), 0), table.pages),
        "the plan gives away only available pages");
}

void KvLedger::Grow(Sequence& sequence, int32_t num_rows) {
  const int32_t end = sequence.num_launched() + num_rows;
  for (int32_t group = 0; group < num_groups(); ++group) {
    const int32_t tokens =
        WindowOf(group) == 0 ? std::max(sequence.num_tokens(), end) : end;
    Extend(sequence.tables[static_cast<size_t>(group)], PagesFor(tokens));
  }
}

void KvLedger::Advance(Sequence& sequence, int32_t num_computed) {
  sequence.num_computed = num_computed;
  if (options_.prefix_caching) RegisterPages(sequence);
  const int32_t num_tokens = sequence.num_tokens();
  for (int32_t group = 0; group < num_groups(); ++group) {
    if (WindowOf(group) == 0) continue;
    PageTable& table = sequence.tables[static_cast<size_t>(group)];
    while (table.num_given_back < FirstSeen(group, num_computed)) {
      pages_.GiveBack(table.pages, table.num_given_back++);
    }
    if (num_tokens - num_computed < 2) continue;
    const int32_t reach = Reach(group, num_computed, num_tokens);
    Extend(table, std::min(reach, table.size() + pages_.available()));
  }
}

void KvLedger::RegisterPages(Sequence& sequence) {
  const int32_t num_computed = sequence.num_computed;
  HashPages(sequence);
  const std::span<const int32_t> ids = CacheIds(sequence);
  PageTable& first = sequence.tables.front();
  while ((sequence.num_registered + 1) * kPageTokens <= num_computed) {
    const int32_t page = sequence.num_registered++;
    // Pages before it were given back and evicted.
    if (page > 0 && !pages_.registered(first.pages[page - 1])) continue;
    const bool is_new = pages_.Register(
        first.pages, page, ids.subspan(page * kPageTokens, kPageTokens),
        Hashes(sequence)[static_cast<size_t>(page)]);
    for (int32_t group = 1; group < num_groups(); ++group) {
      pages_.Attach(first.pages[page], group,
                    sequence.tables[static_cast<size_t>(group)].pages, page);
    }
    if (!is_new || options_.store == nullptr || IsSpecial(sequence)) continue;
    const models::PageId id = first.pages[page];
    new_pages_.push_back(
        {id, pages_.serial(id), Keys(sequence, page + 1).back()});
  }
}

std::span<const models::PageKey> KvLedger::Keys(Sequence& sequence,
                                                int32_t num_pages) const {
  const std::span<const int32_t> ids = CacheIds(sequence);
  std::vector<models::PageKey>& keys = sequence.page_keys;
  for (auto i = static_cast<int32_t>(keys.size()); i < num_pages; ++i) {
    keys.push_back(
        options_.store->KeyOf(keys.empty() ? nullptr : &keys.back(),
                              ids.subspan(i * kPageTokens, kPageTokens)));
  }
  return std::span(keys).first(static_cast<size_t>(num_pages));
}

int32_t KvLedger::Restore(
    Sequence& sequence, int32_t first, int32_t num,
    const std::function<void(models::PageId, int32_t i)>& write) {
  HashPages(sequence);
  const std::span<const int32_t> ids = CacheIds(sequence);
  std::vector<models::PageId> pages =
      pages_.Find(ids, Hashes(sequence), first + num).pages;
  const auto num_there = static_cast<int32_t>(pages.size());
  if (num_there < first) return 0;
  // Held while room is made, which may be that of others in the cache.
  pages_.Share(pages);
  const int32_t num_new = std::min(first + num - num_there, pages_.available());
  CHECK(pages_.Allocate(num_new, pages), "only available pages are taken");
  for (int32_t idx = num_there; idx < num_there + num_new; ++idx) {
    write(pages[idx], idx - first);
    pages_.Register(pages, idx, ids.subspan(idx * kPageTokens, kPageTokens),
                    Hashes(sequence)[static_cast<size_t>(idx)]);
  }
  pages_.Release(pages);
  return num_new;
}

void KvLedger::GiveBack(Sequence& sequence) {
  if (sequence.tables.size() == 1) {
    pages_.Release(sequence.tables.front().pages);
  } else {
    // By position: what follows a page goes to the cache, and from it, sooner.
    std::vector<models::PageId> pages;
    const int32_t size = sequence.tables.front().size();
    for (int32_t i = 0; i < size; ++i) {
      for (const PageTable& table : sequence.tables) {
        if (i < table.size()) pages.push_back(table.pages[i]);
      }
    }
    pages_.Release(pages);
    for (PageTable& table : sequence.tables) table.pages.clear();
  }
  for (PageTable& table : sequence.tables) table.num_given_back = 0;
  sequence.num_computed = 0;
  sequence.num_registered = 0;
}

}  // namespace millrace::scheduler
