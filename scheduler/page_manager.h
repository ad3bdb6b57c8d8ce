// The owners of pages of the KV pool: reference counts over page numbers. The
// bytes are the backend's.
//
//   std::vector<PageId> pages;
//   if (!manager.Allocate(2, pages)) ...           // nothing was taken
//   auto fork = manager.Fork(pages, 70);           // page 0 shared, 1 copied
//   manager.Release(pages);                        // pages is empty again
//
// Every page is in exactly one state, and free + used + cached == total:
//   free    no reference, on the free list
//   used    one reference or more; shared pages are full and never written
//   cached  no reference, contents kept for a later prompt with the same
//           prefix; taken from here, least recently used first, when the free
//           list is empty
//
// Prefix chains. A full, computed page can be registered under its tokens and
// the page before it, so that others find it:
//
//   tokens      [ t0 … t63 | t64 … t127 | t128 … ]
//   registered     page 5  ◄── page 9                  chain of hashes
//
//   manager.HashPages(tokens, hashes);             // once a sequence
//   auto found = manager.Find(tokens, hashes, 2);  // {5, 9}
//   manager.Share(found.pages);                    // one reference more
//
// The hash only finds candidates: a match compares all 64 ids and the page
// before, so a collision can never give foreign contents. Equal contents have
// one registered page: a sequence that computed them again is given the first.
// Hence the owner of a page owns the pages before it, and a page without owner
// was left no later than the page before it: the tail of a chain is evicted
// before its head, and a registered page is always reachable.
//
// A sequence of a model with a sliding window may give back pages of the head
// while it keeps the tail. Then a head may be evicted before its tail; what
// follows an evicted page cannot be found any more, so that a registered page
// stays reachable.
//
// Several page groups. The chains are of pages of the first group, which no
// sequence gives back. A full page of another group is attached to the chain's
// page of the same tokens; its owners own that one, too:
//
//   group 0   page 5 ◄── page 9 ◄── page 2
//   group 1                page 7     page 3       those of page 5 has gone
//
//   manager.Attach(pages0[1], 1, pages1, 1);
//   manager.Attached(page 9, 1);                   // page 7
//
// It is cached, evicted and found again as others are; what it is attached to
// takes it along when it is evicted.
// Source: PagedAttention, Kwon et al. 2023, section 4.4; vLLM's prefix caching.
//
// Engine thread only.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "config/base/status.h"
#include "models/llm/page_groups.h"
#include "models/llm/step.h"

namespace millrace::scheduler {

// Pages that hold `num_tokens` tokens of one sequence.
constexpr int32_t PagesFor(int32_t num_tokens) {
  return (num_tokens + models::kPageTokens - 1) / models::kPageTokens;
}

class PageManager {
 public:
  // `hash_mask` thins the hashes out: with 0 everything collides (tests).
  // `heads_may_go`: GiveBack is used.
  explicit PageManager(int32_t num_pages, uint64_t hash_mask = ~uint64_t{0},
                       bool heads_may_go = false);

  int32_t total() const { return static_cast<int32_t>(pages_.size()); }
  int32_t free() const { return static_cast<int32_t>(free_.size()); }
  int32_t used() const { return used_; }
  int32_t cached() const { return static_cast<int32_t>(cached_.size()); }
  // What Allocate can give.
  int32_t available() const { return free() + cached(); }
  // Pages from this one on were never given to anybody.
  int32_t first_unused() const { return first_unused_; }
  int32_t refs(models::PageId page) const { return At(page).refs; }

  // Appends n fresh pages, of the free ones or else evicted from the cache.
  // False, with nothing taken or evicted, when fewer are available.
  bool Allocate(int32_t n, std::vector<models::PageId>& pages);

  // Drops one reference of each and empties the list. `pages` is in order of
  // position.
  void Release(std::vector<models::PageId>& pages);

  // Drops the reference of pages[idx], in the place of which nothing is left.
  // Of a chain only where heads may go.
  void GiveBack(std::vector<models::PageId>& pages, int32_t idx);

  struct Forked {
    std::vector<models::PageId> pages;
    // To be done before either side writes: the last page when partly filled.
    std::optional<models::PageCopy> copy;
  };
  // A second owner of the first `num_tokens` tokens held by `pages`: full pages
  // are shared, a partial last one is copied to a fresh page, places of pages
  // that were given back stay empty. Nothing, with no
  // reference taken, when no page is available for the copy.
  std::optional<Forked> Fork(std::span<const models::PageId> pages,
                             int32_t num_tokens);

  // Appends the chain hashes of the full pages of `tokens` that `hashes` does
  // not have yet.
  void HashPages(std::span<const int32_t> tokens,
                 std::vector<uint64_t>& hashes) const;

  struct Found {
    std::vector<models::PageId> pages;
    int32_t num_cached = 0;  // of them without an owner, now
  };
  // The longest registered chain that holds the beginning of `tokens`, at most
  // `max_pages` pages of it. Takes no reference: it is true until the next
  // Allocate, Fork or Forget.
  Found Find(std::span<const int32_t> tokens, std::span<const uint64_t> hashes,
             int32_t max_pages) const;
  // One reference more to each page of a chain just found; places may be empty.
  void Share(std::span<const models::PageId> found);
  // Those of a chain just found that are cached were used now.
  void Touch(std::span<const models::PageId> found);

  // pages[idx] is full and computed, those before it are registered: from now
  // on it can be found under these 64 ids and their chain hash. If their
  // contents have a page already, that one takes the place in `pages` and the
  // caller's own goes back: false.
  bool Register(std::vector<models::PageId>& pages, int32_t idx,
                std::span<const int32_t> ids, uint64_t hash);

  // pages[idx], of this group, which is not the first, is full and computed,
  // and holds the tokens that `chained`, a registered page, holds of the first:
  // from now on it is found there. If one is attached already, that takes the
  // place in `pages` and the caller's own goes back.
  void Attach(models::PageId chained, int32_t group,
              std::vector<models::PageId>& pages, int32_t idx);
  // kNoPage: none is.
  models::PageId Attached(models::PageId chained, int32_t group) const {
    return At(chained).attached[static_cast<size_t>(group - 1)];
  }

  bool registered(models::PageId page) const {
    return page != models::kNoPage && At(page).registered;
  }

  // Of the contents of a registered page: another one each time that any page
  // is registered. 0: it is not.
  uint64_t serial(models::PageId page) const {
    return At(page).registered ? At(page).serial : 0;
  }

  // No page can be found any more; cached ones are free.
  void Forget();

  // Whether the books agree with themselves; INTERNAL says where not.
  Status Audit() const;
  // ... and with the lists of all owners: each page is named as often as it
  // has references.
  Status Audit(
      std::span<const std::vector<models::PageId>* const> owners) const;

 private:
  // By group, from the second on.
  using Attachments = std::array<models::PageId, models::kMostPageGroups - 1>;
  static constexpr Attachments NoAttachments() {
    Attachments none{};
    none.fill(models::kNoPage);
    return none;
  }
  struct Page {
    int32_t refs = 0;
    bool registered = false;
    // Of a registered page only.
    models::PageId before = models::kNoPage;  // in the chain; none: the first
    // The registered pages that come next in a chain, as a list: its first one,
    // and this page's neighbours in the list of the page before.
    models::PageId first_follower = models::kNoPage;
    models::PageId sibling = models::kNoPage;
    models::PageId sibling_before = models::kNoPage;
    // 0: it is of a chain. Else it is attached to `before`, and has none of
    // what follows.
    int32_t group = 0;
    Attachments attached = NoAttachments();
    uint64_t hash = 0;
    uint64_t serial = 0;
    std::array<int32_t, models::kPageTokens> ids;
    uint64_t left = 0;  // of a cached page: when its last owner went
  };
  static size_t Index(models::PageId page) { return static_cast<size_t>(page); }
  Page& At(models::PageId page) { return pages_[Index(page)]; }
  const Page& At(models::PageId page) const { return pages_[Index(page)]; }

  models::PageId FindPage(uint64_t hash, models::PageId before,
                          std::span<const int32_t> ids) const;
  void AddReference(models::PageId page);
  void DropReference(models::PageId page);
  // With all that follow it.
  void Unregister(models::PageId page);
  void UnregisterOne(models::PageId page);
  // A page into, and out of, the list of those that follow the one before it.
  void Follow(models::PageId page);
  void Unfollow(models::PageId page);
  Status AuditChains() const;
  Status AuditAttached() const;

  const uint64_t hash_mask_;
  const bool heads_may_go_;
  std::vector<Page> pages_;
  std::vector<models::PageId> free_;  // last in, first out: warm memory first
  int32_t used_ = 0;
  int32_t first_unused_ = 0;
  std::unordered_multimap<uint64_t, models::PageId> registered_;  // by hash
  std::map<uint64_t, models::PageId> cached_;  // by the moment it was left
  uint64_t moments_ = 0;
  uint64_t num_registered_ = 0;  // ever
};

}  // namespace millrace::scheduler
