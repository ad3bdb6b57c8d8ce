// Keeps pages of the prefix cache in a store outside the pool and brings them
// back: between two steps, on the engine's thread, which copies bytes and never
// waits for a file.
//
//   KvOffload offload(store, access, ledger, cost, metrics);
//   offload.Land(sequences);                     // what has come
//   views = ledger.Views(sequences, limits, &offload);   // asks for more
//   ... the step ...
//   offload.Save(rows / kPageTokens + 1);        // in proportion to the work
//
// Each page that a step completes is written soon after, while it is in the
// pool: an evicted page and the pages of a killed process are there by then. A
// waiting sequence whose prompt goes on in the store waits while these pages
// are read; they then lie in the prefix cache, where it finds them. So does a
// preempted one, whose pages others have taken meanwhile: its preemption was a
// swap. Where reading a page takes longer than computing it, nothing is read.
//
// Engine thread only.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <unordered_map>
#include <vector>

#include "config/base/metrics.h"
#include "models/llm/page_access.h"
#include "models/llm/page_store.h"
#include "scheduler/kv_ledger.h"
#include "scheduler/sequence.h"
#include "scheduler/step_cost.h"

namespace millrace::scheduler {

class KvOffload final : public PageFetcher {
 public:
  // All borrowed for its life.
  KvOffload(models::PageStore& store, models::PageAccess& access,
            KvLedger& ledger, const StepCost& cost, Counter hit_tokens);

  // Puts what was fetched since the last call into the prefix cache.
  void Land(std::span<Sequence* const> sequences);
  bool Fetches(Sequence& sequence, int32_t num_found,
               int32_t num_wanted) override;
  // The sequence runs or was preempted: it may ask anew when it waits again.
  static void Forget(Sequence& sequence) { sequence.fetch_from = -1; }

  // Something is on its way: the store will have news.
  bool fetching() const { return !asks_.empty(); }

  // Hands at most so many new pages to the store; how many it took. Fewer when
  // there are no more, or when it has no room now.
  int32_t Save(int32_t most);

 private:
  struct Ask {
    int32_t first = 0;  // page
    std::vector<models::PageKey> keys;
  };

  // How many of the pages that were asked for are pages of this sequence, too.
  int32_t NumShared(Sequence& sequence, const Ask& ask) const;

  // Reading so many pages from `first` on takes less than computing them.
  bool PaysOff(int32_t first, int32_t num) const;

  models::PageStore& store_;
  models::PageAccess& access_;
  KvLedger& ledger_;
  const StepCost& cost_;
  const Counter hit_tokens_;
  std::deque<NewPage> new_pages_;  // not in the store yet; bounded by the pool
  std::unordered_map<uint64_t, Ask> asks_;  // by ticket
  uint64_t last_ticket_ = 0;
};

}  // namespace millrace::scheduler
