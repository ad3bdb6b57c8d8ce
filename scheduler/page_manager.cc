// Refcounts and a free list. A page is shared only when it is full, so nobody
// ever has to ask "may I write here": the page a sequence appends to is its
// own, because Fork copies a partial one at once instead of on first write.
#include "scheduler/page_manager.h"

#include <string>

namespace millrace::scheduler {
using models::kPageTokens;
using models::PageCopy;
using models::PageId;

PageManager::PageManager(int32_t num_pages) : refs_(num_pages, 0) {
  free_.reserve(num_pages);
  for (int32_t page = num_pages - 1; page >= 0; --page) {
    free_.push_back(PageId{page});
  }
}

bool PageManager::Allocate(int32_t n, std::vector<PageId>& pages) {
  if (n > free()) return false;
  for (int32_t i = 0; i < n; ++i) {
    const PageId page = free_.back();
    free_.pop_back();
    CHECK(refs_[Index(page)] == 0, "a page on the free list has an owner");
    refs_[Index(page)] = 1;
    pages.push_back(page);
  }
  used_ += n;
  return true;
}

void PageManager::Release(std::vector<PageId>& pages) {
  // Back to front, so that the next owner gets them in the same order.
  for (auto page = pages.rbegin(); page != pages.rend(); ++page) {
    int32_t& refs = refs_[Index(*page)];
    CHECK(refs > 0, "a page was released more often than taken");
    if (--refs == 0) {
      free_.push_back(*page);
      --used_;
    }
  }
  pages.clear();
}

std::optional<PageManager::Forked> PageManager::Fork(
    std::span<const PageId> pages, int32_t num_tokens) {
  const int32_t num_full = num_tokens / kPageTokens;
  const bool partial = num_tokens % kPageTokens != 0;
  CHECK(num_full + (partial ? 1 : 0) <= static_cast<int32_t>(pages.size()),
        "a fork covers more tokens than its source has pages for");
  Forked forked;
  forked.pages.reserve(pages.size());
  for (int32_t i = 0; i < num_full; ++i) forked.pages.push_back(pages[i]);
  if (partial) {
    if (!Allocate(1, forked.pages)) return std::nullopt;
    forked.copy = PageCopy{pages[num_full], forked.pages.back()};
  }
  // References last: a failed fork leaves the books as they were.
  for (int32_t i = 0; i < num_full; ++i) ++refs_[Index(pages[i])];
  return forked;
}

Status PageManager::Audit() const {
  if (free() + used() + cached() != total()) {
    return Internal("pages: " + std::to_string(free()) + " free + " +
                    std::to_string(used()) + " used + " +
                    std::to_string(cached()) + " cached are not " +
                    std::to_string(total()));
  }
  std::vector<bool> listed(refs_.size(), false);
  for (const PageId page : free_) {
    const std::string name = "page " + std::to_string(Index(page));
    if (listed[Index(page)]) return Internal(name + " is free twice");
    listed[Index(page)] = true;
    if (refs_[Index(page)] != 0) {
      return Internal(name + " is free but has " +
                      std::to_string(refs_[Index(page)]) + " references");
    }
  }
  for (size_t page = 0; page < refs_.size(); ++page) {
    if (refs_[page] < 0 || (refs_[page] == 0 && !listed[page])) {
      return Internal("page " + std::to_string(page) + " is lost with " +
                      std::to_string(refs_[page]) + " references");
    }
  }
  return OkStatus();
}

Status PageManager::Audit(
    std::span<const std::vector<PageId>* const> owners) const {
  RETURN_IF_ERROR(Audit());
  std::vector<int32_t> named(refs_.size(), 0);
  for (const std::vector<PageId>* pages : owners) {
    for (const PageId page : *pages) ++named[Index(page)];
  }
  for (size_t page = 0; page < refs_.size(); ++page) {
    if (named[page] != refs_[page]) {
      return Internal("page " + std::to_string(page) + " has " +
                      std::to_string(refs_[page]) + " references but " +
                      std::to_string(named[page]) + " owners");
    }
  }
  return OkStatus();
}

}  // namespace millrace::scheduler
