// A sequence asks again only for pages behind those it has asked for, so that
// it waits for each page once, whatever becomes of it.
#include "scheduler/kv_offload.h"

#include <algorithm>
#include <utility>

namespace millrace::scheduler {
namespace {

using models::kPageTokens;
using models::PageKey;
using models::PageStore;

// Fetches under way at once; memory for their pages is bounded by it.
constexpr size_t kMostAsks = 2;

}  // namespace

KvOffload::KvOffload(PageStore& store, models::PageAccess& access,
                     KvLedger& ledger, const StepCost& cost, Counter hit_tokens)
    : store_(store),
      access_(access),
      ledger_(ledger),
      cost_(cost),
      hit_tokens_(std::move(hit_tokens)) {}

void KvOffload::Land(std::span<Sequence* const> sequences) {
  for (const PageStore::Fetched& fetched : store_.TakeFetched()) {
    const auto ask = asks_.find(fetched.ticket);
    CHECK(ask != asks_.end(), "only what was asked for is fetched");
    Sequence* owner = nullptr;  // null once its request was cancelled
    int32_t num = 0;
    for (Sequence* sequence : sequences) {
      if (sequence->fetch != fetched.ticket) continue;
      sequence->fetch = 0;
      const int32_t num_shared = NumShared(*sequence, ask->second);
      if (num_shared > num) owner = sequence;
      num = std::max(num, num_shared);
    }
    const int32_t first = ask->second.first;
    asks_.erase(ask);
    if (owner == nullptr) continue;
    const int32_t num_new = ledger_.Restore(
        *owner, first,
        std::min(num, static_cast<int32_t>(fetched.pages.size())),
        [&](models::PageId page, int32_t i) {
          access_.WritePage(page, fetched.pages[static_cast<size_t>(i)]);
        });
    hit_tokens_.Add(num_new * kPageTokens);
  }
}

int32_t KvOffload::NumShared(Sequence& sequence, const Ask& ask) const {
  const int32_t num_full = sequence.num_tokens() / kPageTokens;
  const auto most = static_cast<int32_t>(ask.keys.size());
  const std::span<const PageKey> keys =
      ledger_.Keys(sequence, std::min(num_full, ask.first + most));
  int32_t num = 0;
  while (num < most && ask.first + num < num_full &&
         keys[static_cast<size_t>(ask.first + num)] ==
             ask.keys[static_cast<size_t>(num)]) {
    ++num;
  }
  return num;
}

bool KvOffload::Fetches(Sequence& sequence, int32_t num_found,
                        int32_t num_wanted) {
  if (sequence.fetch != 0) return true;
  if (num_found >= num_wanted || num_found <= sequence.fetch_from) return false;
  const std::span<const PageKey> keys = ledger_.Keys(sequence, num_wanted);
  if (sequence.fetch_from < 0) store_.Used(keys);
  const std::span<const PageKey> lacking =
      keys.subspan(static_cast<size_t>(num_found));
  size_t num = 0;
  const auto most = static_cast<size_t>(store_.max_fetch());
  while (num < lacking.size() && num < most && store_.Holds(lacking[num])) {
    ++num;
  }
  if (num == 0 || !PaysOff(num_found, static_cast<int32_t>(num))) return false;
  const auto same = std::ranges::find_if(asks_, [&](const auto& ask) {
    return ask.second.first == num_found &&
           ask.second.keys.front() == lacking.front();
  });
  if (same == asks_.end() && asks_.size() >= kMostAsks) return true;
  sequence.fetch_from = num_found;
  if (same != asks_.end()) {
    sequence.fetch = same->first;
    return true;
  }
  sequence.fetch = ++last_ticket_;
  const std::vector<PageKey> wanted(lacking.begin(),
                                    lacking.begin() + static_cast<long>(num));
  asks_[sequence.fetch] = {.first = num_found, .keys = wanted};
  store_.Fetch(sequence.fetch, wanted);
  return true;
}

bool KvOffload::PaysOff(int32_t first, int32_t num) const {
  if (!cost_.known()) return true;
  const double computed =
      cost_.Added(ShapeOfRows(first * kPageTokens, num * kPageTokens, 0));
  return store_.fetch_seconds() * num < computed;
}

int32_t KvOffload::Save(int32_t most) {
  for (NewPage& page : ledger_.TakeNewPages()) new_pages_.push_back(page);
  // What stands too far behind has been evicted, most of it.
  const auto bound = static_cast<size_t>(ledger_.pages().total());
  while (new_pages_.size() > bound) new_pages_.pop_front();
  int32_t num_saved = 0;
  while (num_saved < most && !new_pages_.empty()) {
    const NewPage& page = new_pages_.front();
    if (ledger_.pages().serial(page.page) == page.serial &&
        !store_.Holds(page.key)) {
      std::optional<PageStore::Bytes> bytes = store_.TakeBuffer();
      if (!bytes) break;
      access_.ReadPage(page.page, *bytes);
      store_.Keep(page.key, *std::move(bytes));
      ++num_saved;
    }
    new_pages_.pop_front();
  }
  return num_saved;
}

}  // namespace millrace::scheduler
