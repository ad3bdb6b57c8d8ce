// Which pages of the KV pool belong to whom: refcounts over integers. The bytes
// are the backend's; a page is named here and filled there.
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
//           prefix. Nothing is cached yet: the prefix chain will take a page
//           here instead of to the free list when its last reference goes, and
//           Allocate will evict from here when the free list is empty.
//
// Engine thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "config/base/status.h"
#include "models/llm/step.h"

namespace millrace::scheduler {

// Pages that hold `num_tokens` tokens of one sequence.
constexpr int32_t PagesFor(int32_t num_tokens) {
  return (num_tokens + models::kPageTokens - 1) / models::kPageTokens;
}

class PageManager {
 public:
  explicit PageManager(int32_t num_pages);

  int32_t total() const { return static_cast<int32_t>(refs_.size()); }
  int32_t free() const { return static_cast<int32_t>(free_.size()); }
  int32_t used() const { return used_; }
  int32_t cached() const { return 0; }
  int32_t refs(models::PageId page) const { return refs_[Index(page)]; }

  // Appends n fresh pages. False, with nothing taken, when fewer are free.
  bool Allocate(int32_t n, std::vector<models::PageId>& pages);

  // Drops one reference of each and empties the list.
  void Release(std::vector<models::PageId>& pages);

  struct Forked {
    std::vector<models::PageId> pages;
    // To be done before either side writes: the last page when partly filled.
    std::optional<models::PageCopy> copy;
  };
  // A second owner of the first `num_tokens` tokens held by `pages`: full pages
  // are shared, a partial last one is copied to a fresh page. Nothing, with no
  // reference taken, when no page is free for the copy.
  std::optional<Forked> Fork(std::span<const models::PageId> pages,
                             int32_t num_tokens);

  // Whether the books agree with themselves; INTERNAL says where not.
  Status Audit() const;
  // ... and with the lists of all owners: each page is named as often as it
  // has references.
  Status Audit(
      std::span<const std::vector<models::PageId>* const> owners) const;

 private:
  static size_t Index(models::PageId page) { return static_cast<size_t>(page); }

  std::vector<int32_t> refs_;         // by page
  std::vector<models::PageId> free_;  // last in, first out: warm memory first
  int32_t used_ = 0;
};

}  // namespace millrace::scheduler
