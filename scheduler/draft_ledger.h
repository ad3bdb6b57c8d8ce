// Page tables of the draft model's KV cache: which tokens of each running
// sequence it has computed, and which pages hold them. Separate from the pages
// of the model.
//
//   tokens    [ t0 t1 t2 t3 ]          known to the sequence
//   held        ^  ^  ^                computed by the draft model, for good
//   on trial             t3 d4 d5      computed, too: the last one, and drafts
//
// When the sequence has moved on, accepted draft tokens are held and the rest
// is forgotten: rows behind the held tokens are written over, so a rejected
// draft token costs no work. The last known token is never held, since the next
// draft token is drawn from its row.
//
//   ledger.Sync(sequence);                     // before asking anything else
//   if (ledger.Grow(sequence, end)) ...        // pages up to a position
//   ledger.Hold(sequence, num_rows);           // known tokens are computed
//   ledger.Try(sequence, id);                  // a draft token is
//   ledger.Release(sequence);                  // before it gives up its slot
//
// Full pages of held tokens can be found by others that begin alike, as in the
// model's own cache. A sequence for which no page is left is not drafted for;
// nothing is ever taken from another one.
//
// Plain and deterministic; the simulator runs it beside the model's ledger.
// Engine thread only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "config/base/status.h"
#include "models/llm/step.h"
#include "scheduler/page_manager.h"
#include "scheduler/sequence.h"

namespace millrace::scheduler {

struct DraftLedgerOptions {
  int32_t num_pages = 0;
  int32_t num_slots = 0;
  int32_t max_context = 0;  // tokens of one sequence
  bool prefix_caching = true;
  // See PageManager; as where the sequences' page hashes were made.
  uint64_t hash_mask = ~uint64_t{0};
};

class DraftLedger {
 public:
  explicit DraftLedger(const DraftLedgerOptions& options);

  const PageManager& pages() const { return pages_; }
  std::span<const models::PageId> PagesOf(const Sequence& sequence) const {
    return At(sequence).pages;
  }
  // Known tokens whose rows are computed, and those that are not: one at least.
  int32_t Held(const Sequence& sequence) const { return At(sequence).held; }
  int32_t Lacking(const Sequence& sequence) const {
    return sequence.num_tokens() - Held(sequence);
  }

  // Judges the draft tokens by the sequence's tokens. Of a sequence of which
  // nothing is held, looks up what others have computed.
  void Sync(const Sequence& sequence);

  // Pages for positions below `end`; false, with nothing taken, when there are
  // too few or the draft model reaches no further.
  bool Grow(const Sequence& sequence, int32_t end);

  // The next `num_rows` known tokens are computed.
  void Hold(const Sequence& sequence, int32_t num_rows);
  // The draft token behind all that is known and on trial is computed.
  void Try(const Sequence& sequence, int32_t id);

  // The sequence stops running, or is not drafted for any more.
  void Release(const Sequence& sequence);

  // Contents are not to be trusted any more (a device fault).
  void Forget();

  // The books against themselves and against all slots.
  Status Audit() const;

 private:
  struct State {
    std::vector<models::PageId> pages;
    int32_t held = 0;
    int32_t num_registered = 0;  // pages, from the first; see PageManager
    std::vector<int32_t> on_trial;
  };
  State& At(const Sequence& sequence);
  const State& At(const Sequence& sequence) const;
  void Register(const Sequence& sequence, State& state);

  const DraftLedgerOptions options_;
  PageManager pages_;
  std::vector<State> states_;  // by slot
};

}  // namespace millrace::scheduler
