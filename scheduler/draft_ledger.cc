// A page is registered for the prefix cache when all its tokens are held, never
// for draft tokens, and held tokens stay held. So no registered page is
// written, although the rows of rejected draft tokens are written over.
#include "scheduler/draft_ledger.h"

#include <algorithm>
#include <utility>

namespace millrace::scheduler {

using models::kPageTokens;

DraftLedger::DraftLedger(const DraftLedgerOptions& options)
    : options_(options),
      pages_(options.num_pages, options.hash_mask),
      states_(static_cast<size_t>(options.num_slots)) {}

DraftLedger::State& DraftLedger::At(const Sequence& sequence) {
  CHECK(sequence.running() && sequence.slot < options_.num_slots,
        "only running sequences are drafted for");
  return states_[static_cast<size_t>(sequence.slot)];
}

const DraftLedger::State& DraftLedger::At(const Sequence& sequence) const {
  return const_cast<DraftLedger*>(this)->At(sequence);
}

void DraftLedger::Sync(const Sequence& sequence) {
  State& state = At(sequence);
  const int32_t most = sequence.num_tokens() - 1;
  for (const int32_t id : state.on_trial) {
    if (state.held >= most || sequence.tokens[state.held] != id) break;
    ++state.held;
  }
  state.on_trial.clear();
  Register(sequence, state);
  if (!state.pages.empty() || !options_.prefix_caching) return;
  const auto found =
      pages_.Find(sequence.tokens, sequence.page_hashes,
                  std::min(most, options_.max_context) / kPageTokens);
  pages_.Share(found.pages);
  state.pages = found.pages;
  state.num_registered = static_cast<int32_t>(state.pages.size());
  state.held = state.num_registered * kPageTokens;
}

bool DraftLedger::Grow(const Sequence& sequence, int32_t end) {
  State& state = At(sequence);
  if (end > options_.max_context) return false;
  const int32_t lacking =
      PagesFor(end) - static_cast<int32_t>(state.pages.size());
  return pages_.Allocate(std::max(lacking, 0), state.pages);
}

void DraftLedger::Hold(const Sequence& sequence, int32_t num_rows) {
  State& state = At(sequence);
  CHECK(state.on_trial.empty() && num_rows > 0 &&
            state.held + num_rows <= sequence.num_tokens(),
        "known tokens are computed before draft tokens are");
  state.held += num_rows;
  if (state.held == sequence.num_tokens()) {
    --state.held;
    state.on_trial.push_back(sequence.tokens.back());
  }
  Register(sequence, state);
}

void DraftLedger::Try(const Sequence& sequence, int32_t id) {
  State& state = At(sequence);
  CHECK(!state.on_trial.empty(),
        "a draft token stands behind all known tokens");
  state.on_trial.push_back(id);
}

void DraftLedger::Register(const Sequence& sequence, State& state) {
  if (!options_.prefix_caching) return;
  while ((state.num_registered + 1) * kPageTokens <= state.held &&
         state.num_registered <
             static_cast<int32_t>(sequence.page_hashes.size())) {
    const int32_t page = state.num_registered++;
    pages_.Register(
        state.pages, page,
        std::span(sequence.tokens).subspan(page * kPageTokens, kPageTokens),
        sequence.page_hashes[static_cast<size_t>(page)]);
  }
}

void DraftLedger::Release(const Sequence& sequence) {
  State& state = At(sequence);
  pages_.Release(state.pages);
  state = State();
}

void DraftLedger::Forget() {
  for (State& state : states_) {
    pages_.Release(state.pages);
    state = State();
  }
  pages_.Forget();
}

Status DraftLedger::Audit() const {
  std::vector<const std::vector<models::PageId>*> owners;
  for (const State& state : states_) {
    const auto num_tried = static_cast<int32_t>(state.on_trial.size());
    if (PagesFor(state.held + num_tried) >
        static_cast<int32_t>(state.pages.size())) {
      return Internal("the draft model holds tokens without a page");
    }
    owners.push_back(&state.pages);
  }
  return pages_.Audit(owners);
}

}  // namespace millrace::scheduler
